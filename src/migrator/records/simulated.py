"""A simulated run as records, the same as a live run's: for the page, `windows` and `report`.

Moments count from a fixed day and nothing is measured on this machine, so that the same run writes
the same records. What became of requests is known by the window, not by the second.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from migrator.core.errors import InputError
from migrator.core.outcome import RunOutcome, TenantOutcome, WindowOutcome
from migrator.core.scenario import Scenario
from migrator.io.whole_file import check_path, written_whole
from migrator.records.held_blocks import held_blocks
from migrator.records.rows import (
    EventRecord,
    PlanRecord,
    Record,
    SecondRecord,
    TenantWindowRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.simulated_units import unit_rows
from migrator.records.store import Records, read_runs

DRIVER = "simulated"
BEGAN_S = 946_684_800.0
"""The first moment of the year 2000, when every simulated run begins."""
_PLANNED = "what the policy decided, all decisions of the window together"


@dataclass(frozen=True)
class Simulated:
    """A run with what its outcome does not say."""

    outcome: RunOutcome
    scenario: Scenario
    overhead_s: Mapping[str, float]
    """Tenant -> what passes until something new to it serves."""


def check_records_path(path: Path, option: str = "--records") -> None:
    """InputError where no records can go to `path`; those of a live run are never replaced."""
    check_path(path, (".db",), option)
    if not path.exists():
        return
    try:
        live = [each for each in read_runs(path) if each.driver != DRIVER]
    except InputError as error:
        raise InputError(
            f"{option}: {path} is there and no file of records; name another"
        ) from error
    if live:
        raise InputError(f"{option}: {path} has the records of a live run; name another file")


def write_simulations(path: Path, runs: Sequence[Simulated], option: str = "--records") -> None:
    """All of them into one file, which is there whole or not at all."""
    check_records_path(path, option)
    with written_whole(path, option) as unfinished:
        for each in runs:
            _write(unfinished, each)
        # one file that can be read where nothing can be written beside it
        with closing(sqlite3.connect(unfinished)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")


def _write(path: Path, run: Simulated) -> None:
    scenario, outcome = run.scenario, run.outcome
    records = Records(
        path,
        scenario=outcome.scenario,
        board=scenario.board.name,
        driver=DRIVER,
        policy=outcome.policy,
        seed=outcome.seed,
        about={
            "window_s": scenario.window_s,
            "slot_s": scenario.slot_s,
            "tenants": [each.name for each in scenario.tenants],
        },
        seconds_kept_s=None,
        began_s=BEGAN_S,
        pid=0,
    )
    for row in rows_of(run):
        records.put(row)
    records.close(BEGAN_S + len(outcome.windows) * scenario.window_s)


def rows_of(run: Simulated) -> Iterator[Record]:
    """Everything that is written of a run besides itself."""
    scenario = run.scenario
    for window in run.outcome.windows:
        began_s = BEGAN_S + window.window * scenario.window_s
        yield from _window(window, run, began_s)
        for each in window.tenants:
            yield _tenant_window(window.window, each, run)
            first = round(window.window * scenario.window_s)
            yield from _seconds(each, first, scenario.slot_s)
    yield from unit_rows(run.outcome, scenario, run.overhead_s, BEGAN_S)
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
    )
    blocks = held_blocks(window.slots, scenario.board)
    yield PlanRecord(window.window, began_s, 0, _PLANNED, window.predicted, blocks=blocks)


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
