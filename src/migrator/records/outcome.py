"""A live run as the simulator tells its own, so that both are held against others alike."""

from __future__ import annotations

from collections import Counter

from migrator.core.outcome import RunOutcome, Tally, TenantOutcome, WindowOutcome
from migrator.records.views import Counted, LiveRun, LiveWindow

Starts = Counter[tuple[int, str | None]]
"""By window and tenant."""


def run_outcome(run: LiveRun) -> RunOutcome:
    """The windows that have ended as the simulator tells its own, counted from 0.

    What failed counts as dropped: to whoever waited it is the same.
    """
    ended = [each for each in run.windows if each.ended]
    row, forecasters = run.records.run, {each.row.forecaster for each in ended}
    places = [(run.window_at(each.from_s), each.tenant) for each in run.starts]
    starts = Counter((found.row.window, tenant) for found, tenant in places if found)
    return RunOutcome(
        row.scenario,
        row.policy,
        ", ".join(sorted(forecasters)),
        row.seed,
        tuple(_window_outcome(run, number, each, starts) for number, each in enumerate(ended)),
    )


def _window_outcome(run: LiveRun, number: int, window: LiveWindow, starts: Starts) -> WindowOutcome:
    return WindowOutcome(
        window=number,
        tenants=tuple(_tenant_outcome(run, name, window, starts) for name in run.tenants),
        slots=window.planned,
        plan_s=window.row.plan_s or 0.0,
        predicted=window.row.predicted_goodput,
        fluid=None,
    )


def _tenant_outcome(run: LiveRun, name: str, window: LiveWindow, starts: Starts) -> TenantOutcome:
    counted, row = window.tenants[name], window.rows.get(name)
    adopted = [
        each.at_s
        for each in run.records.versions
        if each.tenant == name and each.adopted and window.holds(each.at_s)
    ]
    before = (row.accuracy_before if row else None) or 0.0
    return TenantOutcome(
        tenant=name,
        tally=_tally(counted),
        reconfigurations=starts[window.row.window, name],
        accuracy_before=before,
        retrained_s=adopted[-1] - window.row.began_s if adopted else None,
        accuracy_after=(row.accuracy_after if row else None) or before,
        received=(),
        expected=None,
    )


def _tally(counted: Counted) -> Tally:
    return Tally(
        received=counted.received,
        goodput=counted.goodput or 0.0,
        wrong=counted.wrong or 0.0,
        late=counted.late,
        dropped=counted.dropped + counted.failed,
        queued=counted.unanswered,
        while_reconfiguring=counted.while_reconfiguring or 0,
    )
