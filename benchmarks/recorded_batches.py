"""Batches that a run recorded, what ran beside them, and by how much that made them longer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.core.batch import Batch, BatchKind
from migrator.core.catalogue import Board
from migrator.core.profiles import Service
from migrator.core.scenario import Scenario
from migrator.records.rows import RunRecords, UnitRecord
from migrator.simulation.interference import BatchSlowdown

BATCHES = "batches.csv"
"""In the folder of a run."""
_FEWEST = 500
"""Batches of requests from which their slowdown is derived."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Recorded:
    """What ran in one run, live or simulated. Times are seconds since its first window."""

    name: str
    batches: tuple[Batch, ...]
    """In the order in which they began."""
    units: tuple[UnitRecord, ...]
    services: Mapping[str, Service]
    board: Board
    end_s: float

    def profiled_s(self, batch: Batch) -> float:
        """Seconds that the batch takes alone, by the profile."""
        sms = _sms(self.board, gpcs_of(batch.place, self.board))
        return self.services[batch.tenant].latency_s(batch.rows, sms)

    def capability(self, tenant: str, gpcs: float) -> float:
        """Requests per second on an instance, by the profile."""
        return self.services[tenant].capability_rps(_sms(self.board, gpcs))


class Surroundings(NamedTuple):
    """What ran beside a batch, in the mean over its time."""

    on_slices: float
    """Other batches on its slices."""
    training: float
    """The share of the board that trained."""
    busy: float
    """The share of the board that was busy, without the batch."""


class Slowdown(NamedTuple):
    """By how much batches take longer than by the profile."""

    fixed_s: float
    """Every batch."""
    training: float
    """The part by which it takes longer if the whole board trained."""
    serving: float
    """The same if the whole board served."""
    on_slices: float
    """The same beside another batch on its slices."""


def gpcs_of(place: str, board: Board) -> float:
    """The size of an instance or share by the name that batches have."""
    if "g@" in place:
        return float(place.partition("g@")[0])
    return float(place.partition("%")[0]) / 100 * board.compute_slices


def _sms(board: Board, gpcs: float) -> float:
    whole = round(gpcs)
    if whole in board.sizes and math.isclose(whole, gpcs):
        return board.sms_of(whole)
    return board.sms * gpcs / board.compute_slices


def recorded(
    name: str,
    batches: Iterable[Batch],
    records: RunRecords,
    scenario: Scenario,
    zero_s: float,
    batch_zero_s: float,
) -> Recorded:
    """What ran in the windows of a run, which began at `zero_s` of the records' clock and at
    `batch_zero_s` of that of the batches."""
    end_s = scenario.windows * scenario.window_s
    moved = (_moved(batch, -batch_zero_s) for batch in batches)
    kept = [batch for batch in moved if 0 <= batch.taken_s < end_s]
    return Recorded(
        name,
        tuple(sorted(kept, key=lambda batch: batch.began_s)),
        tuple(_unit_at(unit, zero_s, end_s) for unit in records.units),
        {tenant.service.tenant: tenant.service for tenant in scenario.tenants},
        scenario.board,
        end_s,
    )


def _moved(batch: Batch, by_s: float) -> Batch:
    times = {name: getattr(batch, name) + by_s for name in Batch._fields if name.endswith("_s")}
    return batch._replace(**times)


def _unit_at(unit: UnitRecord, zero_s: float, end_s: float) -> UnitRecord:
    to_s = end_s if unit.to_s is None else min(end_s, unit.to_s - zero_s)
    return UnitRecord(
        *(unit.unit, max(0.0, unit.from_s - zero_s), unit.start, unit.gpcs),
        *(unit.tenant, unit.task, unit.state, to_s),
    )


class _Busy:
    """How much of something ran, integrated over time."""

    def __init__(self, spans: Sequence[tuple[float, float, float]]) -> None:
        """`spans`: begin, end and weight."""
        edges = [(begin, weight) for begin, _, weight in spans]
        edges += [(end, -weight) for _, end, weight in spans]
        edges.sort()
        self._at = np.array([at for at, _ in edges] or [0.0])
        levels = np.cumsum([weight for _, weight in edges] or [0.0])
        self._sums = np.concatenate([[0.0], np.cumsum(levels[:-1] * np.diff(self._at))])

    def between(self, begin_s: float, end_s: float) -> float:
        """Weight times seconds."""
        found: Floats = np.interp([begin_s, end_s], self._at, self._sums)
        return float(found[1] - found[0])


def surroundings(run: Recorded) -> list[Surroundings]:
    """What ran beside every batch."""
    parts = {batch.place: _part(run, gpcs_of(batch.place, run.board)) for batch in run.batches}
    trainings = [
        (unit.from_s, unit.to_s or run.end_s, _part(run, unit.gpcs))
        for unit in run.units
        if unit.state == "training" and (unit.to_s or run.end_s) > unit.from_s
    ]
    spans = [(e.began_s, max(e.began_s, e.ended_s), parts[e.place]) for e in run.batches]
    slices = [_slices(batch.place) for batch in run.batches]
    on_slice: dict[str, list[tuple[float, float, float]]] = {}
    for (begin_s, end_s, _), taken in zip(spans, slices, strict=True):
        for name in taken:
            on_slice.setdefault(name, []).append((begin_s, end_s, 1.0))
    by_slice = {name: _Busy(ran) for name, ran in on_slice.items()}
    training, busy = _Busy(trainings), _Busy([*spans, *trainings])
    found = []
    for (begin_s, end_s, weight), taken in zip(spans, slices, strict=True):
        took_s = max(1e-9, end_s - begin_s)
        others = [by_slice[name].between(begin_s, end_s) / took_s - 1 for name in taken]
        found.append(
            Surroundings(
                max(0.0, float(np.mean(others))),
                training.between(begin_s, end_s) / took_s,
                busy.between(begin_s, end_s) / took_s - weight,
            )
        )
    return found


def _part(run: Recorded, gpcs: float) -> float:
    """The share of the board's SMs."""
    return _sms(run.board, gpcs) / run.board.sms


def _slices(place: str) -> list[str]:
    """The slices of an instance: batches of other places share them where instances changed."""
    if "g@" not in place:
        return [place]
    gpcs, _, start = place.partition("g@")
    return [str(int(start) + number) for number in range(int(gpcs))]


def slowdown(run: Recorded) -> Slowdown:
    """Least squares over all batches of requests."""
    rows, beyond_s = [], []
    for batch, ran in zip(run.batches, surroundings(run), strict=True):
        if batch.kind is not BatchKind.EVALUATION:
            alone_s = run.profiled_s(batch)
            beside = ran.training, ran.busy - ran.training, ran.on_slices
            rows.append([1.0, *(alone_s * part for part in beside)])
            beyond_s.append(batch.ended_s - batch.began_s - alone_s)
    if not rows:
        return Slowdown(0.0, 0.0, 0.0, 0.0)
    return Slowdown(*np.linalg.lstsq(np.array(rows), np.array(beyond_s), rcond=None)[0].tolist())


def measured_slowdown(run: Recorded) -> BatchSlowdown | None:
    """What a simulation of the run needs of it; None: too few batches."""
    if sum(batch.kind is not BatchKind.EVALUATION for batch in run.batches) < _FEWEST:
        return None
    fixed_s, training, serving, _ = slowdown(run)
    return BatchSlowdown(max(0.0, fixed_s), max(0.0, training), max(0.0, serving))
