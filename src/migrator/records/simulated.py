"""Simulated runs as records, so that reports treat them like live runs.

Times count from a fixed day and planning times are not written, so that the same run writes the
same file. What became of requests is known per window, not per second. Forecasters chosen per
tenant are recorded as events.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.core.outcome import RunOutcome, TenantOutcome, WindowOutcome
from migrator.core.problem import Holding, Instance, Kind, Share, Task
from migrator.core.scenario import Scenario
from migrator.io.files import check_path, write_atomically
from migrator.records.rows import (
    TABLES,
    EventRecord,
    PlanRecord,
    Record,
    RunRecords,
    RunRow,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.runs import SIMULATED, RecordedRun, held_blocks, recorded_run
from migrator.records.store import Records, read_runs

BEGAN_S = 946_684_800.0
"""The first moment of the year 2000, when every simulated run begins."""
_REASON = "all decisions of the window"


@dataclass(frozen=True)
class Simulated:
    """The outcome of a simulation and what it was run with."""

    outcome: RunOutcome
    scenario: Scenario
    overhead_s: Mapping[str, float]
    """Per tenant the time until a new instance or share serves."""


def simulated_run(run: Simulated) -> RecordedRun:
    """The run as reports read it, with planning times."""
    return recorded_run(_records(run))


def _records(run: Simulated) -> RunRecords:
    outcome, about = run.outcome, _about(run)
    board, ended_s = run.scenario.board.name, BEGAN_S + len(outcome.windows) * run.scenario.window_s
    names = (outcome.scenario, board, SIMULATED, outcome.policy)
    row = RunRow(1, BEGAN_S, ended_s, *names, outcome.seed, 0, about)
    rows = list(_rows(run))
    found: list[Any] = [tuple(each for each in rows if type(each) is kind) for kind in TABLES]
    return RunRecords(row, *found)


def check_records_path(path: Path, option: str = "--records") -> None:
    """InputError if records cannot be written to `path`; those of a live run are never replaced."""
    check_path(path, (".db",), option)
    if not path.exists():
        return
    try:
        live = [each for each in read_runs(path) if each.driver != SIMULATED]
    except InputError as error:
        raise InputError(
            f"{option}: {path} exists and is no file of records; name another"
        ) from error
    if live:
        raise InputError(f"{option}: {path} has the records of a live run; name another file")


def write_simulations(path: Path, runs: Sequence[Simulated], option: str = "--records") -> None:
    """Write all runs into one file; a failure leaves no file."""
    check_records_path(path, option)
    with write_atomically(path, option=option) as unfinished:
        for each in runs:
            _write(unfinished, each)
        # a single file, readable also where nothing can be written beside it
        with closing(sqlite3.connect(unfinished)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")


def _write(path: Path, run: Simulated) -> None:
    found = _records(run)
    kept = ("scenario", "board", "driver", "policy", "seed", "about", "began_s", "pid")
    facts = {name: getattr(found.run, name) for name in kept}
    records = Records(path, **facts, seconds_kept_s=None)
    windows = [replace(each, plan_s=None) for each in found.windows]
    plans = [replace(each, plan_s=None) for each in found.plans]
    rest = (found.tenant_windows, found.seconds, found.units, found.versions, found.events)
    for row in chain(windows, plans, *rest):
        records.put(row)
    records.close(found.run.ended_s)


def _about(run: Simulated) -> dict[str, object]:
    scenario, windows = run.scenario, run.outcome.windows
    counts: dict[str, list[int]] = {}
    for window in windows:
        for each in window.tenants:
            counts.setdefault(each.tenant, []).append(each.reconfigurations)
    return {
        "window_s": scenario.window_s,
        "slot_s": scenario.slot_s,
        "labels": scenario.labels.value,
        "tenants": [each.name for each in scenario.tenants],
        "fluid_goodput": [each.fluid for each in windows],
        "reconfigurations": counts,
    }


def _rows(run: Simulated) -> Iterator[Record]:
    scenario = run.scenario
    for window in run.outcome.windows:
        began_s = BEGAN_S + window.window * scenario.window_s
        yield from _window(window, run, began_s)
        for each in window.tenants:
            yield _tenant_window(window.window, each, run)
            yield from _seconds(each, round(window.window * scenario.window_s), scenario.slot_s)
    yield from _units(run)
    yield from _versions(run)


def _window(window: WindowOutcome, run: Simulated, began_s: float) -> Iterator[Record]:
    outcome, scenario = run.outcome, run.scenario
    yield WindowRecord(
        window.window,
        began_s,
        outcome.policy,
        outcome.forecaster,
        ended_s=began_s + scenario.window_s,
        predicted_goodput=window.predicted,
        plan_s=window.plan_s,
    )
    blocks = held_blocks(window.slots, scenario.board)
    yield PlanRecord(
        window.window, began_s, 0, _REASON, window.predicted, window.plan_s, blocks=blocks
    )
    for each in window.tenants:
        if each.forecast_by not in {None, outcome.forecaster}:
            yield EventRecord(began_s, "forecast", f"{each.tenant} forecast by {each.forecast_by}")


def _tenant_window(window: int, each: TenantOutcome, run: Simulated) -> TenantWindowRecord:
    tally = each.tally
    earlier = [w for w in run.outcome.windows if w.window <= window]
    swaps = sum(
        t.tenant == each.tenant and t.retrained_s is not None for w in earlier for t in w.tenants
    )
    return TenantWindowRecord(
        window,
        each.tenant,
        received=tally.received,
        in_time=round(tally.in_time),
        late=tally.late,
        dropped=tally.dropped,
        goodput=tally.goodput,
        wrong=tally.wrong,
        while_reconfiguring=tally.while_reconfiguring,
        accuracy_before=each.accuracy_before,
        accuracy_after=each.accuracy_after,
        version=1 + swaps,
    )


def _seconds(each: TenantOutcome, first: int, slot_s: float) -> Iterator[SecondRecord]:
    """A row per slot, or per second where slots are shorter."""
    starts = [math.floor(slot * slot_s + 1e-9) for slot in range(len(each.received) + 1)]
    for start in dict.fromkeys(starts[:-1]):
        slots = [slot for slot, at in enumerate(starts[:-1]) if at == start]
        span_s = max(1, starts[slots[-1] + 1] - start)
        mean = None
        if each.expected is not None:
            mean = round(sum(each.expected[slot] for slot in slots) / (len(slots) * slot_s), 3)
        yield SecondRecord(
            each.tenant,
            first + start,
            sum(each.received[slot] for slot in slots),
            None,
            forecast_mean=mean,
            span_s=span_s,
        )


def _versions(run: Simulated) -> Iterator[Record]:
    numbers: dict[str, int] = {}
    for window in run.outcome.windows:
        began_s = BEGAN_S + window.window * run.scenario.window_s
        for each in window.tenants:
            name = each.tenant
            if name not in numbers:
                numbers[name], words = 1, "the model it begins with"
                yield VersionRecord(name, 1, BEGAN_S, each.accuracy_before, True, words)
            if each.retrained_s is not None:
                numbers[name] += 1
                at_s, words = began_s + each.retrained_s, "retrained on the window's data"
                yield VersionRecord(name, numbers[name], at_s, each.accuracy_after, True, words)
                yield EventRecord(at_s, "model", f"{name}: version {numbers[name]}, {words}")


# The states of instances and shares, derived from the holdings of every slot. As in the
# simulator, what is new to a tenant is warmed first, and a share serves until its replacement is
# warm. Waits for running batches are not included.

_Place = tuple[int, int, str] | Share
"""What stays the same unit from slot to slot: a place with its tenant, or a share."""
_State = tuple[float, str, Task | None]
"""Since when, which state, for which task."""


@dataclass
class _Unit:
    holding: Holding
    states: list[_State] = field(default_factory=list)
    until_s: float | None = None


def _units(run: Simulated) -> Iterator[UnitRecord]:
    """Every state of every unit."""
    for number, unit in enumerate(_unit_histories(run), 1):
        ends = [*(each[0] for each in unit.states[1:]), unit.until_s]
        for (from_s, state, task), to_s in zip(unit.states, ends, strict=True):
            if to_s is not None and to_s <= from_s:
                continue
            parts_s = {"warm_s": to_s - from_s} if state == "warming" and to_s is not None else {}
            yield UnitRecord(
                f"{unit.holding}#{number}",
                BEGAN_S + from_s,
                unit.holding.start if isinstance(unit.holding, Instance) else None,
                _gpcs(unit.holding, run.scenario),
                task.tenant if task else None,
                str(task.kind) if task and state != "idle" else "",
                state,
                None if to_s is None else BEGAN_S + to_s,
                parts_s,
            )


def _unit_histories(run: Simulated) -> list[_Unit]:
    scenario, overhead_s = run.scenario, run.overhead_s
    present: dict[_Place, _Unit] = {}
    every: list[_Unit] = []
    slots = [slot for window in run.outcome.windows for slot in window.slots]
    for number, slot in enumerate(slots):
        now_s = number * scenario.slot_s
        wanted = {_place(each): each for each in slot if each.task is not None}
        leaving = [(place, present.pop(place)) for place in list(present) if place not in wanted]
        for place, holding in wanted.items():
            if place in present:
                _continue(present[place], holding, now_s, overhead_s)
                continue
            present[place] = _create(holding, now_s, overhead_s, is_first_slot=number == 0)
            every.append(present[place])
        for place, unit in leaving:
            unit.until_s = max(now_s, _replaced_s(place, present.values()))
    for unit in present.values():
        unit.until_s = len(slots) * scenario.slot_s
    completions = _completions_s(run)
    for unit in every:
        _idle_after_retraining(unit, completions)
    return every


def _create(
    holding: Holding, now_s: float, overhead_s: Mapping[str, float], *, is_first_slot: bool
) -> _Unit:
    task = holding.task
    assert task is not None
    is_warm = is_first_slot and task.kind is Kind.INFERENCE
    cold_s = 0.0 if is_warm else overhead_s[task.tenant]
    states: list[_State] = [(now_s, "warming", task)] if cold_s else []
    return _Unit(holding, [*states, (now_s + cold_s, _busy(task), task)])


def _continue(unit: _Unit, holding: Holding, now_s: float, overhead_s: Mapping[str, float]) -> None:
    """The same unit; where its task changes, another process of its tenant takes over."""
    task, before = holding.task, unit.states[-1][2]
    if task is None or task == before:
        return
    ready_s = unit.states[-1][0]
    unit.states = [each for each in unit.states if each[0] < now_s]
    if task.kind is Kind.RETRAINING:
        unit.states += [(now_s, "warming", task)]
        ready_s = now_s + overhead_s[task.tenant]
    unit.states.append((max(now_s, ready_s), _busy(task), task))


def _replaced_s(place: _Place, present: Iterable[_Unit]) -> float:
    """When the replacement of a share is warm."""
    if not isinstance(place, Share):
        return 0.0
    replacements = [each for each in present if each.holding.task == place.task]
    return max((each.states[-1][0] for each in replacements), default=0.0)


def _completions_s(run: Simulated) -> dict[str, list[float]]:
    """Per tenant, when its retrainings were completed."""
    found: dict[str, list[float]] = {}
    for window in run.outcome.windows:
        for each in window.tenants:
            if each.retrained_s is not None:
                at_s = window.window * run.scenario.window_s + each.retrained_s
                found.setdefault(each.tenant, []).append(at_s)
    return found


def _idle_after_retraining(unit: _Unit, completions: Mapping[str, Sequence[float]]) -> None:
    """What is held for a retraining that is complete idles."""
    states: list[_State] = []
    until = [*(each[0] for each in unit.states[1:]), unit.until_s or float("inf")]
    for (from_s, state, task), to_s in zip(unit.states, until, strict=True):
        states.append((from_s, state, task))
        if state == "training" and task is not None:
            own = completions.get(task.tenant, ())
            done = [each for each in own if from_s < each < to_s - 1e-6]
            states += [(each, "idle", task) for each in done[:1]]
    unit.states = states


def _busy(task: Task) -> str:
    return "training" if task.kind is Kind.RETRAINING else "ready"


def _place(holding: Holding) -> _Place:
    if isinstance(holding, Share):
        return holding
    assert holding.task is not None
    return holding.start, holding.gpcs, holding.task.tenant


def _gpcs(holding: Holding, scenario: Scenario) -> float:
    if isinstance(holding, Instance):
        return holding.gpcs
    return holding.percent / 100 * scenario.board.compute_slices
