"""A simulated run as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.core.not_retrained import Reason
from migrator.core.outcome import Tally
from migrator.records.outcome import RunOutcome
from migrator.report.terminal import (
    count,
    grouped,
    percent,
    plural,
    relation,
    table_lines,
    wrapped,
)

_WHOLE = 1e7
"""Up to here the two counts that matter most are shown to the unit."""
_RUN_HEADERS = (
    *("window", "tenant", "received", "goodput", "share", "SLO", "accuracy"),
    *("wrong", "late", "dropped", "cold", "new"),
)
_RUN_KEY = (
    "share: goodput / received; SLO: in time / received; cold: late or dropped while an instance\n"
    "was not yet warm; new: instances or shares that were new"
)


def run_table(outcome: RunOutcome) -> str:
    """Per window and tenant and in all: what was received and what became of it."""
    groups = []
    for window in outcome.windows:
        tenants = [
            (tenant.tenant, tenant.tally, tenant.reconfigurations) for tenant in window.tenants
        ]
        groups.append(grouped(str(window.window), _tenant_lines(tenants)))
    changes = outcome.tenant_reconfigurations
    whole = [(name, tally, changes[name]) for name, tally in outcome.tenants.items()]
    groups.append(grouped("all", _tenant_lines(whole)))
    table = table_lines(_RUN_HEADERS, groups, text_columns=2, shrinks=1)
    what = f"{outcome.scenario} under {outcome.policy}"
    how = f"forecaster {outcome.forecaster}, seed {outcome.seed}"
    sentences = [
        *_run_sentences(outcome),
        *_forecast_lines(outcome),
        *_not_retrained_lines(outcome),
    ]
    return "\n".join([f"{what} ({how})", *table, "", _RUN_KEY, *sentences])


def _tenant_lines(tenants: Sequence[tuple[str, Tally, int]]) -> list[tuple[str, ...]]:
    """A line per tenant, and one for all of them if there are several."""
    lines = [(name, *_run_cells(tally), count(new)) for name, tally, new in tenants]
    if len(lines) != 1:
        total = sum((tally for _, tally, _ in tenants), Tally())
        lines.append(("all", *_run_cells(total), count(sum(new for *_, new in tenants))))
    return lines


def _run_cells(tally: Tally) -> tuple[str, ...]:
    parts = (tally.goodput_share, tally.slo_attainment, tally.accuracy)
    lost = (tally.wrong, tally.late, tally.dropped, tally.while_reconfiguring)
    return (
        count(tally.received, _WHOLE),
        count(tally.goodput, _WHOLE),
        *map(percent, parts),
        *map(count, lost),
    )


def _run_sentences(outcome: RunOutcome) -> list[str]:
    windows = plural(len(outcome.windows), "window")
    sentences = [f"planning took {outcome.plan_s:.3g} s over {windows}", outcome.labels.words]
    if len(outcome.tenants) > 1:
        sentences = [*wrapped(outcome.fairness.words), *sentences]
    for words in outcome.preferences.words(outcome.tenants):
        sentences += wrapped(words)
    queued = outcome.tally.queued
    if queued:
        sentences.append(f"{queued:,} requests still waited at the end")
    for name, promised in (
        ("predicted", [window.predicted for window in outcome.windows]),
        ("in the fluid model", [window.fluid for window in outcome.windows]),
    ):
        goodputs = [goodput for goodput in promised if goodput is not None]
        measured = outcome.tally.goodput
        if goodputs and len(goodputs) == len(promised) and measured:
            whole = sum(goodputs)
            sentences.append(
                f"goodput {name} {whole:,.0f} ({relation(whole, measured, 'measured')})"
            )
    return sentences


def _forecast_lines(outcome: RunOutcome) -> Iterator[str]:
    """The forecaster chosen for every tenant in the last window, and why."""
    when = " in the last window" if len(outcome.windows) > 1 else ""
    for tenant in outcome.windows[-1].tenants if outcome.windows else ():
        if tenant.forecast_by not in {None, outcome.forecaster}:
            yield from wrapped(f"{tenant.tenant} forecast{when} by {tenant.forecast_by}")


def _not_retrained_lines(outcome: RunOutcome) -> Iterator[str]:
    """Which tenants had something to learn and were not retrained, and why."""
    missed_windows: dict[tuple[str, Reason], list[tuple[int, str]]] = {}
    for window in outcome.windows:
        for tenant in window.tenants:
            waits = tenant.not_retrained
            if waits is not None and waits.reason is not Reason.NO_DATA:
                missed = missed_windows.setdefault((tenant.tenant, waits.reason), [])
                missed.append((window.window, waits.words))
    for (name, _), missed in missed_windows.items():
        numbers = ", ".join(str(number) for number, _ in missed)
        windows = f"window {numbers}" if len(missed) == 1 else f"windows {numbers}"
        yield from wrapped(f"{name} not retrained in {windows}: {missed[-1][1]}")
