"""Records of made-up runs, as if they had been held as planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from migrator.core.catalogue import board
from migrator.records.outcome import RunOutcome, TenantOutcome, WindowOutcome
from migrator.records.rows import (
    EventRecord,
    PlanRecord,
    Record,
    RetrainingRecord,
    RunRow,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.runs import SIMULATED, Block, RecordedRun, held_blocks, recorded_run
from migrator.records.simulated import BEGAN_S, RowsInMemory
from support.outcomes import arrivals

BOARD = board("H200-141GB")
WARM_S = 0.5
"""How long every start took."""


def recorded(outcome: RunOutcome) -> RecordedRun:
    """The run with slots of a second."""
    rows, slots = RowsInMemory(), 6
    for window in outcome.windows:
        slots = len(window.slots)
        for row in _rows(outcome, window):
            rows.put(row)
    counts = {
        name: [window.tenants[at].reconfigurations for window in outcome.windows]
        for at, name in enumerate(outcome.tenants)
    }
    about = {
        "window_s": float(slots),
        "slot_s": 1.0,
        "labels": outcome.labels.value,
        "tenants": list(outcome.tenants) or ["bert", "vit"],
        "fluid_goodput": [window.fluid for window in outcome.windows],
        "reconfigurations": counts,
    }
    names = (outcome.scenario, BOARD.name, SIMULATED, outcome.policy)
    ended_s = BEGAN_S + slots * len(outcome.windows)
    return recorded_run(rows.records(RunRow(1, BEGAN_S, ended_s, *names, outcome.seed, 0, about)))


def _rows(outcome: RunOutcome, window: WindowOutcome) -> Iterator[Record]:
    slots = len(window.slots)
    began_s = BEGAN_S + window.window * slots
    yield WindowRecord(
        window.window,
        began_s,
        outcome.policy,
        outcome.forecaster,
        began_s + slots,
        predicted_goodput=window.predicted,
        plan_s=window.plan_s,
    )
    blocks = held_blocks(window.slots, BOARD)
    yield PlanRecord(window.window, began_s, 0, "the window begins", blocks=blocks)
    for number, block in enumerate(blocks):
        yield from _unit(f"unit#{window.window}.{number}", block, began_s)
    for index, tenant in enumerate(window.tenants):
        yield from _tenant(window.window, tenant, began_s, slots)
        mean = None if window.predicted is None else arrivals(index, slots)
        for slot in range(slots):
            second = window.window * slots + slot
            expected = None if mean is None else float(mean[slot])
            yield SecondRecord(tenant.tenant, second, 40, None, forecast_mean=expected)
        if tenant.forecast_by not in {None, outcome.forecaster}:
            text = f"{tenant.tenant} forecast by {tenant.forecast_by}"
            yield EventRecord(began_s, "forecast", text)


def _unit(name: str, block: Block, began_s: float) -> Iterator[UnitRecord]:
    tenant, _, task = (block["task"] or "").rpartition("/")
    from_s, to_s = began_s + block["from"], began_s + block["until"]
    state = {"": "idle", "inference": "ready", "retraining": "training"}[task]
    row = UnitRecord(name, from_s, block["start"], block["gpcs"], tenant or None, task, state, to_s)
    if task == "inference":
        parts_s = {"warm_s": WARM_S}
        yield replace(row, state="warming", to_s=from_s + WARM_S, parts_s=parts_s)
        yield replace(row, from_s=from_s + WARM_S)
    else:
        yield row


def _tenant(window: int, tenant: TenantOutcome, began_s: float, slots: int) -> Iterator[Record]:
    tally, name = tenant.tally, tenant.tenant
    yield TenantWindowRecord(
        window,
        name,
        received=tally.received,
        in_time=round(tally.in_time),
        late=tally.late,
        dropped=tally.dropped,
        goodput=tally.goodput,
        wrong=tally.wrong,
        while_reconfiguring=tally.while_reconfiguring,
        accuracy_before=tenant.accuracy_before,
        accuracy_after=tenant.accuracy_after,
        version=1,
    )
    if window == 0:
        yield VersionRecord(name, 1, BEGAN_S, tenant.accuracy_before, True, "the first")
    if tenant.retrained_s is not None:
        at_s = began_s + tenant.retrained_s
        yield VersionRecord(name, 2 + window, at_s, tenant.accuracy_after, True, "retrained")
        yield EventRecord(at_s, "model", f"{name}: version {2 + window}, retrained")
    if tenant.not_retrained is not None:
        retrained = tenant.not_retrained
        yield RetrainingRecord(
            window,
            name,
            began_s + slots,
            "waiting",
            0.0,
            reason=retrained.reason.value,
            why=retrained.words,
        )
