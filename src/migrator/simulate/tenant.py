"""One tenant in a run: its requests, its model, and its waiting requests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.instance import Kind
from migrator.core.outcome import Tally
from migrator.core.scenario import ServedTenant
from migrator.simulate import serving
from migrator.simulate.gpu import Worker
from migrator.simulate.learning import DriftingModel, Model
from migrator.workload.traces.requests import TenantArrivals


class RunningTenant:
    """A tenant of the scenario with its state between windows."""

    def __init__(
        self,
        tenant: ServedTenant,
        slot_s: float,
        seed: int,
        number: int,
        model: Model | None = None,
    ) -> None:
        self.service = tenant.service
        self.offset_s = tenant.offset_s
        self.slot_s = slot_s
        self.arrivals = TenantArrivals(tenant.trace, slot_s, seed, number)
        self.model: Model = model or DriftingModel(tenant.drifts)
        self._waiting = (np.empty(0), np.empty(0))

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.service.tenant

    def history(self, now_s: float) -> NDArray[np.float64]:
        """Requests per slot until `now_s` of the run, including the trace before it."""
        until = self.offset_s + now_s
        return self.arrivals.slots(math.fmod(until, self.slot_s), until)

    def received(self, begin_s: float, end_s: float) -> NDArray[np.float64]:
        """Requests per slot between two times of the run."""
        return self.arrivals.slots(self.offset_s + begin_s, self.offset_s + end_s)

    def serve(
        self,
        processes: Sequence[Worker],
        begin_s: float,
        end_s: float,
        slowdown: NDArray[np.float64],
        estimates: Sequence[tuple[Worker, float]] = (),
        *,
        slowest_first: bool,
        drawn: bool,
    ) -> Tally:
        """Serve the requests of a window, waiting ones first, and count their outcomes.

        `estimates`: with the factor by which batches take longer beside them on their instance.
        """
        arrival_s, draw = self._requests(begin_s, end_s)
        mine = [each for each in processes if self._is_mine(each)]
        phases = [phase for each in mine for phase in _phases(each, estimates)]
        phases.sort(key=lambda each: -self._latency_s(each, 1))
        workers = self._workers(phases)
        cold = _spans([(each.since_s, min(each.ready_s, each.until_s)) for each in mine])
        now = serving.Conditions(
            begin_s,
            end_s,
            self.service.slo_s,
            self.service.batch,
            slowest_first,
            self.slot_s,
            slowdown,
            np.array([when for when, _ in self.model.switches]),
            np.array([accuracy for _, accuracy in self.model.switches]),
            np.array([begin for begin, _ in cold]),
            np.array([end for _, end in cold]),
        )
        waited = len(self._waiting[0])
        counted, served = serving.serve(arrival_s, draw, drawn, workers, now)
        for phase, free_s in zip(phases, workers.free_s, strict=True):
            phase.worker.free_s = max(phase.worker.free_s, float(free_s))
        settled = counted[serving.IN_TIME] + counted[serving.LATE] + counted[serving.DROPPED]
        assert settled == served, "requests are missing from the counts"
        self._waiting = (arrival_s[served:], draw[served:])
        return Tally(
            received=len(arrival_s) - waited,
            goodput=float(counted[serving.GOODPUT]),
            wrong=float(counted[serving.IN_TIME] - counted[serving.GOODPUT]),
            late=int(counted[serving.LATE]),
            dropped=int(counted[serving.DROPPED]),
            queued=len(arrival_s) - served - waited,
            while_reconfiguring=int(counted[serving.RECONFIGURING]),
        )

    def _requests(
        self, begin_s: float, end_s: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        offset = self.offset_s
        times = self.arrivals.times(offset + begin_s, offset + end_s) - offset
        draws = self.arrivals.draws(offset + begin_s, len(times))
        return (
            np.concatenate([self._waiting[0], times]),
            np.concatenate([self._waiting[1], draws]),
        )

    def _workers(self, phases: Sequence[_Phase]) -> serving.Workers:
        batches = range(self.service.batch + 1)
        latency_s = [[self._latency_s(each, max(1, batch)) for batch in batches] for each in phases]
        return serving.Workers(
            np.array(latency_s, dtype=np.float64).reshape(len(phases), len(batches)),
            np.array([each.ready_s for each in phases]),
            np.array([each.until_s for each in phases]),
            np.array([each.worker.free_s for each in phases]),
        )

    def _latency_s(self, phase: _Phase, batch: int) -> float:
        worker = phase.worker
        return self.service.latency_s(batch, worker.sms) / worker.duty * phase.slower

    def _is_mine(self, worker: Worker) -> bool:
        return worker.task.tenant == self.name and worker.task.kind is Kind.INFERENCE


@dataclass(frozen=True)
class _Phase:
    """A time in which a worker takes new batches at one speed."""

    worker: Worker
    ready_s: float
    until_s: float
    slower: float = 1.0


def _phases(worker: Worker, estimates: Sequence[tuple[Worker, float]]) -> Iterator[_Phase]:
    """A worker's life, divided by the estimates on its instance, one after the other."""
    at_s = worker.ready_s
    for estimate, slower in estimates:
        begin_s, end_s = max(at_s, estimate.ready_s), min(worker.until_s, estimate.until_s)
        if estimate.holding == worker.holding and begin_s < end_s:
            yield _Phase(worker, at_s, begin_s)
            yield _Phase(worker, begin_s, end_s, slower)
            at_s = end_s
    yield _Phase(worker, at_s, worker.until_s)


def ready() -> None:
    """Compile or load the kernels once, so that worker processes do not all compile them."""
    none = np.empty(0)
    workers = serving.Workers(np.ones((1, 2)), np.zeros(1), np.ones(1), np.zeros(1))
    now = serving.Conditions(
        0.0, 1.0, 1.0, 1, False, 1.0, np.ones(1), np.zeros(1), np.ones(1), none, none
    )
    serving.serve(np.zeros(1), np.zeros(1), False, workers, now)


def _spans(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of spans, sorted and disjoint."""
    union: list[tuple[float, float]] = []
    for begin, end in sorted(each for each in spans if each[0] < each[1]):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((begin, end))
    return union
