"""Batches of live runs beside those of their simulation, and where answers are lost.

    PYTHONPATH=src python -m benchmarks.gpu.batches FOLDER/runs/seed0/migrator ...

Each folder is a run of `live.py`, which records the batches. It is simulated again with what it
measured (`measured_run.py`): the same requests at the same times. Durations are those of the
profile, so a ratio of 1.1 is a batch that took 10% longer than alone on its slices.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.live_results import Finished, finished_runs
from benchmarks.measured_run import measured_run
from benchmarks.recorded_batches import (
    BATCHES,
    Recorded,
    Surroundings,
    gpcs_of,
    recorded,
    slowdown,
    surroundings,
)
from migrator.core.batch import Batch, BatchKind
from migrator.forecast.selection import forecaster
from migrator.policies.registry import policy
from migrator.records.simulated import BEGAN_S
from migrator.simulation.run import run as simulated_run

FEWEST = 5
"""Groups with fewer batches are left out."""
LIVE, SIMULATED = "live", "simulated"


@dataclass(frozen=True)
class Group:
    """Batches of one kind."""

    count: int
    rows: float
    """In the mean."""
    ratio: float
    """Duration over that of the profile, median."""
    ratio_p95: float
    waited_s: float
    """From the arrival of the oldest request to the start, median."""
    in_time: int


@dataclass(frozen=True)
class Gap:
    """A part of the time from the end of one batch until the next begins, where requests wait."""

    part: str
    median_s: float
    p95_s: float


@dataclass(frozen=True)
class Loss:
    """Answers in time that the simulation has and the live run has not; negative: the reverse."""

    tenant: str
    why: str
    answers: float


Key = tuple[str, str, str, str]
"""Tenant, instance size, kind, and what ran beside."""


def recorded_run(folder: Path) -> tuple[Recorded, Recorded]:
    """A live run and its simulation."""
    finished = _finished(folder)
    batches: list[Batch] = []
    scenario, chosen = finished.live.scenario, policy(finished.policy)
    outcome = simulated_run(
        scenario,
        chosen,
        forecaster(finished.measured.records.windows[0].forecaster),
        even_start=True,
        measured=measured_run(finished.live, chosen, finished.measured),
        record=True,
        batches=batches.append,
    )
    assert outcome.records is not None
    run = finished.measured
    return (
        recorded(LIVE, run.batches, run.records, scenario, run.began_s, run.began_s),
        recorded(SIMULATED, batches, outcome.records, scenario, BEGAN_S, 0.0),
    )


def _finished(folder: Path) -> Finished:
    folder = folder.resolve()
    if not (folder / BATCHES).is_file():
        raise SystemExit(f"{folder}: it has no {BATCHES}; name a run folder of live.py")
    for finished in finished_runs(folder.parents[2]):
        if (f"seed{finished.seed}", finished.policy) == (folder.parent.name, folder.name):
            return finished
    raise SystemExit(f"{folder}: this run did not end as it should")


def _beside(ran: Surroundings) -> str:
    if ran.on_slices > 0.05:
        return "another on its slices"
    return "a training" if ran.training > 0.0 else "neither"


def groups(run: Recorded) -> dict[Key, Group]:
    """Batches by tenant, size, kind and what ran beside them."""
    members: dict[Key, list[Batch]] = {}
    for batch, ran in zip(run.batches, surroundings(run), strict=True):
        size = f"{gpcs_of(batch.place, run.board):g}g"
        key = batch.tenant, size, str(batch.kind), _beside(ran)
        members.setdefault(key, []).append(batch)
    return {
        key: _group(run, batches)
        for key, batches in sorted(members.items())
        if len(batches) >= FEWEST
    }


def _group(run: Recorded, batches: Sequence[Batch]) -> Group:
    ratios = [(batch.ended_s - batch.began_s) / run.profiled_s(batch) for batch in batches]
    return Group(
        len(batches),
        float(np.mean([batch.rows for batch in batches])),
        float(np.median(ratios)),
        float(np.percentile(ratios, 95)),
        float(np.median([batch.taken_s - batch.came_s for batch in batches])),
        sum(batch.in_time for batch in batches),
    )


def gaps(run: Recorded) -> list[Gap]:
    """The parts of the gaps between batches of a busy worker: the next one had waited for it."""
    parts: dict[str, list[float]] = {
        "answer to the router": [],
        "until the next is taken": [],
        "until it is sent": [],
        "until the worker has it": [],
        "all": [],
    }
    last: dict[tuple[str, str], Batch] = {}
    for batch in run.batches:
        before = last.get((batch.tenant, batch.place))
        last[batch.tenant, batch.place] = batch
        if before is None or batch.came_s > before.ended_s:
            continue
        times = before.ended_s, before.answered_s, batch.taken_s, batch.sent_s, batch.began_s
        if batch.taken_s - before.answered_s > 0.05:
            continue  # something else held it back
        for part, begin_s, end_s in zip(parts, times, times[1:], strict=False):
            parts[part].append(end_s - begin_s)
        parts["all"].append(batch.began_s - before.ended_s)
    return [
        Gap(part, float(np.median(values)), float(np.percentile(values, 95)))
        for part, values in parts.items()
        if values
    ]


def losses(
    live: Recorded, simulated: Recorded, dropped: dict[str, NDArray[np.bool_]]
) -> list[Loss]:
    """Why the simulation answers more in the seconds in which the live run dropped requests, the
    largest first. `dropped`: those seconds by tenant.

    Answers on own slices are a product: what the slices could answer, the shares of it without
    evaluations and with batches, and the answers over what fits into batches of that length. The
    difference is divided by their logarithms.
    """
    found = []
    for tenant, seconds in dropped.items():
        own = [_own(run, tenant, seconds) for run in (live, simulated)]
        lent = [_answers(run, tenant, seconds, BatchKind.LENT) for run in (live, simulated)]
        found.append(Loss(tenant, "batches on lent slices", lent[1] - lent[0]))
        difference = own[1][0] - own[0][0]
        if min(*own[0], *own[1]) <= 0:
            found.append(Loss(tenant, "own slices", difference))
            continue
        whole = math.log(own[1][0] / own[0][0])
        names = ("less time on slices", "evaluations", "no batch", "slower or late batches")
        for name, here, there in zip(names, own[0][1:], own[1][1:], strict=True):
            part = math.log(there / here) / whole if whole else 0.0
            found.append(Loss(tenant, name, part * difference))
    return sorted(found, key=lambda loss: -abs(loss.answers))


def _own(run: Recorded, tenant: str, seconds: NDArray[np.bool_]) -> tuple[float, ...]:
    """Answers in time on own slices, and their factors."""
    answers = _answers(run, tenant, seconds, BatchKind.OWN)
    able = evaluating = used = 0.0
    for unit in run.units:
        if unit.state == "ready" and unit.tenant == tenant:
            able += run.capability(tenant, unit.gpcs) * _within(unit.from_s, unit.to_s, seconds)
    for batch in run.batches:
        if batch.tenant == tenant and batch.kind is not BatchKind.LENT:
            took_s = _within(batch.began_s, batch.ended_s, seconds)
            took = run.capability(tenant, gpcs_of(batch.place, run.board)) * took_s
            if batch.kind is BatchKind.OWN:
                used += took
            else:
                evaluating += took
    if not used:
        return (0.0,)
    free = able - evaluating
    return answers, able, free / able, used / free, answers / used


def _answers(run: Recorded, tenant: str, seconds: NDArray[np.bool_], kind: BatchKind) -> float:
    mine = (batch for batch in run.batches if batch.tenant == tenant and batch.kind is kind)
    return float(
        sum(batch.in_time for batch in mine if seconds[min(len(seconds) - 1, int(batch.taken_s))])
    )


def _within(begin_s: float, end_s: float | None, seconds: NDArray[np.bool_]) -> float:
    """How much of a time lies in the seconds."""
    passed = np.concatenate([[0.0], np.cumsum(seconds)])
    until_s = len(seconds) if end_s is None else end_s
    found = np.interp([begin_s, until_s], np.arange(len(passed)), passed)
    return float(found[1] - found[0])


def dropped_in(folder: Path) -> dict[str, NDArray[np.bool_]]:
    """By tenant: the seconds of a live run in which requests were dropped or late."""
    finished = _finished(folder)
    seconds = round(finished.live.scenario.windows * finished.live.scenario.window_s)
    found = {tenant.name: np.zeros(seconds, np.bool_) for tenant in finished.live.tenants}
    for row in finished.measured.records.seconds:
        if row.tenant in found and row.dropped + row.late:
            found[row.tenant][row.second : row.second + row.span_s] = True
    return found


def report(folder: Path) -> Iterator[str]:
    """The tables of one run."""
    live, simulated = recorded_run(folder)
    yield f"\n## {folder.parent.name}, {folder.name}"
    yield from _totals(live, simulated)
    headers = ("batches", "beside", "run", "count", "rows", "over profile, median", "p95")
    yield f"\n| {' | '.join((*headers, 'waited', 'in time'))} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    by_run = {run.name: groups(run) for run in (live, simulated)}
    for key in sorted({key for found in by_run.values() for key in found}):
        for name, found in by_run.items():
            if key in found:
                yield _group_row(key, name, found[key])
    yield "\n| gap of a busy worker | run | median | p95 |"
    yield "|---|---|---|---|"
    for run in (live, simulated):
        for gap in gaps(run):
            times = f"{1e3 * gap.median_s:.2f} ms | {1e3 * gap.p95_s:.2f} ms"
            yield f"| {gap.part} | {run.name} | {times} |"
    yield "\n| run | longer: every batch | board that trains | board that serves | on its slices |"
    yield "|---|---|---|---|---|"
    for run in (live, simulated):
        fixed_s, *parts = slowdown(run)
        yield f"| {run.name} | {1e3 * fixed_s:+.2f} ms | {' | '.join(f'{e:+.1%}' for e in parts)} |"
    yield "\n| answers that only the simulation has | tenant | where |"
    yield "|---|---|---|"
    for loss in losses(live, simulated, dropped_in(folder)):
        yield f"| {loss.answers:+,.0f} | {loss.tenant} | {loss.why} |"


def _totals(live: Recorded, simulated: Recorded) -> Iterator[str]:
    yield "\n| tenant | kind | batches live | simulated | answers in time live | simulated |"
    yield "|---|---|---|---|---|---|"
    for tenant in live.services:
        for kind in BatchKind:
            counts, answers = [], []
            for run in (live, simulated):
                mine = [e for e in run.batches if e.tenant == tenant and e.kind is kind]
                counts.append(f"{len(mine):,}")
                answers.append(f"{sum(batch.in_time for batch in mine):,}")
            yield f"| {' | '.join((tenant, kind, *counts, *answers))} |"


def _group_row(key: Key, name: str, group: Group) -> str:
    tenant, size, kind, beside = key
    cells = [f"{tenant} {size} {kind}", beside, name, f"{group.count:,}", f"{group.rows:.2f}"]
    cells += [f"{group.ratio:.3f}", f"{group.ratio_p95:.3f}", f"{1e3 * group.waited_s:.0f} ms"]
    return f"| {' | '.join((*cells, f'{group.in_time:,}'))} |"


def main() -> None:
    """Print the tables of every run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="RUN_FOLDER")
    for folder in parser.parse_args().folders:
        for line in report(folder):
            print(line, flush=True)


if __name__ == "__main__":
    main()
