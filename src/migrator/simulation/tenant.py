"""One tenant in a run: its requests, its model, and its waiting requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from migrator.control.retraining import TenantRetraining
from migrator.control.tenant_state import FEWEST_LABELS, TenantState, TrainingRoom
from migrator.core.batch import Batch, BatchKind, place_name
from migrator.core.outcome import Tally
from migrator.core.problem import Kind
from migrator.core.profiles import Curve
from migrator.core.scenario import Drift, ServedTenant
from migrator.planning.kernels import announced
from migrator.simulation import serving
from migrator.simulation.gpu import SimulatedWorker, StandbyWorker
from migrator.workload.tenant_arrivals import TenantArrivals

# ruff: noqa: ARG002 (several implementations of one protocol)


class TenantModel(Protocol):
    """The model that serves a tenant."""

    accuracy: float
    """Accuracy on this window's data."""
    switches: list[tuple[float, float]]
    """Times in this window and the accuracy from each on; the first is the window's start."""

    def begin(self, now_s: float, window: int) -> None:
        """Begin a window with other data."""

    def plan(self, state: TenantState, window: int, room: TrainingRoom, *, known: bool) -> None:
        """Set the known accuracy of the model and the retraining of a window.

        `known`: the policy sees the true accuracy after the retraining.
        """

    def finish(
        self, state: TenantState, job: TenantRetraining, now_s: float, swap_s: float
    ) -> None:
        """End a retraining. Its model serves after `swap_s`, unless it is refused."""

    def expected_below_first(self, job: TenantRetraining) -> float:
        """How much less accuracy was expected of a retraining than of one in the first
        configuration."""

    def labelled(self, first: int, window: int) -> int:
        """Number of labels that a retraining in a window can learn, if `first` is the first window
        whose labels are not learned."""

    def training_s(self, state: TenantState, window: int, most_samples: int) -> Curve:
        """Duration over SMs of the retraining in a window."""

    def end_estimate(self, state: TenantState, window: int) -> None:
        """Set the estimate of the retraining in a window."""


class DriftingModel:
    """A model with the accuracies of the scenario."""

    def __init__(self, drifts: tuple[Drift, ...]) -> None:
        self._drifts = drifts
        self._window = -1
        self._trained_on = -1
        """The window whose data it was trained on."""
        self._trained_as_first = True
        """Whether it was trained in the first configuration, which `accuracy_pre` is about."""
        self.accuracy = 1.0
        self.switches: list[tuple[float, float]] = []

    @property
    def evaluated(self) -> float | None:
        """Its accuracy as an evaluation at the window's start tells it; None: there is none."""
        return self.accuracy

    def begin(self, now_s: float, window: int) -> None:
        """Lower the accuracy, whether or not the model was retrained in the window before."""
        drift = self._drift(window)
        trained = self._trained_on == window - 1 and self._trained_as_first
        if drift is not None and (window == 0 or trained):
            self.accuracy = drift.accuracy_pre
        else:
            self.accuracy = min(1.0, self.accuracy * self._fading(window))
        self._window = window
        self.switches = [(now_s, self.accuracy)]

    def plan(self, state: TenantState, window: int, room: TrainingRoom, *, known: bool) -> None:
        """Set the retraining. A running one continues; a waiting one is dropped, as its data is
        old."""
        state.begin_known_window(window, self.evaluated, self._drift(window), known=known)

    def finish(
        self, state: TenantState, job: TenantRetraining, now_s: float, swap_s: float
    ) -> None:
        """Serve the retrained model. If it outlasted its window, it has lost accuracy in every
        window since."""
        drift = self._drifts[job.window]
        after = drift.accuracy_after(job.configuration)
        self._trained_as_first = job.configuration == drift.configuration
        for window in range(job.window + 1, self._window + 1):
            after = min(1.0, after * self._fading(window))
        self._trained_on = job.window
        self.accuracy = after
        state.model.adopt(None, after)
        self.switches.append((now_s + swap_s, after))

    def expected_below_first(self, job: TenantRetraining) -> float:
        """By the estimates that the scenario gives."""
        return self._drifts[job.window].expected_below_first(job.configuration)

    def labelled(self, first: int, window: int) -> int:
        """Enough, if the window's data can be learned."""
        drift = self._drift(window)
        return FEWEST_LABELS if drift is not None and drift.seconds is not None else 0

    def training_s(self, state: TenantState, window: int, most_samples: int) -> Curve:
        """The duration that the scenario gives for the window."""
        seconds = self._drifts[window].seconds
        assert seconds is not None, "estimated although there is nothing to retrain on"
        return seconds

    def end_estimate(self, state: TenantState, window: int) -> None:
        """Set the estimate that the scenario gives for the window."""
        drift = self._drift(window)
        if drift is not None:
            state.model.set_estimate(drift.accuracy_expected, window)

    def _drift(self, window: int) -> Drift | None:
        return self._drifts[window] if 0 <= window < len(self._drifts) else None

    def _fading(self, window: int) -> float:
        drift, before = self._drift(window), self._drift(window - 1)
        if drift is None or before is None:
            return 1.0
        return drift.accuracy_pre / before.accuracy_post if before.accuracy_post else 1.0


class RunningTenant:
    """A tenant of the scenario with its state between windows."""

    def __init__(
        self,
        tenant: ServedTenant,
        slot_s: float,
        seed: int,
        number: int,
        model: TenantModel | None = None,
        *,
        fixed_s: float = 0.0,
    ) -> None:
        """`fixed_s`: seconds of every batch in addition to those of the profile."""
        self.service, self._fixed_s = tenant.service, fixed_s
        self.offset_s = tenant.offset_s
        self.slot_s = slot_s
        self.arrivals = TenantArrivals(tenant.trace, slot_s, seed, number)
        self.model: TenantModel = model or DriftingModel(tenant.drifts)
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
        processes: Sequence[SimulatedWorker],
        begin_s: float,
        end_s: float,
        slowdown: NDArray[np.float64],
        estimates: Sequence[tuple[SimulatedWorker, float]] = (),
        *,
        slowest_first: bool,
        drawn: bool,
        lent: Sequence[Spans] = (),
        trial: bool = False,
        record: Callable[[Batch], None] | None = None,
    ) -> tuple[Tally, list[Spans]]:
        """Serve the requests of a window, waiting ones first, and count their outcomes.

        `estimates`: with the factor by which batches take longer beside them on their instance.
        `lent`: times of other tenants' workers in which a standby serves on their slices. `trial`:
        change nothing. `record`: gets every batch. Also returns when batches ran, with `lent` or
        `trial`.
        """
        arrival_s, draw = self._requests(begin_s, end_s)
        mine = [process for process in processes if self._is_mine(process)]
        periods = [period for worker in mine for period in _steady_periods(worker, estimates)]
        periods.sort(key=lambda period: -self._latency_s(period, 1))
        workers = self._workers(periods, lent)
        cold = _spans([(worker.since_s, min(worker.ready_s, worker.until_s)) for worker in mine])
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
            self._fixed_s,
        )
        waited = len(self._waiting[0])
        kept = len(arrival_s) if trial or lent or record else 0
        sent = np.full((kept, serving.BATCH_COLUMNS), -1.0)
        counted, served = serving.serve(arrival_s, draw, drawn, workers, now, sent)
        if not trial:
            for period, free_s in zip(periods, workers.free_s[: len(periods)], strict=True):
                period.worker.free_s = max(period.worker.free_s, float(free_s))
        ran = _spans_of(
            [period.worker for period in periods], [spans.worker for spans in lent], sent, workers
        )
        if record is not None:
            places = [place_name(period.worker.holding) for period in periods]
            for spans in lent:
                places += [place_name(spans.worker.holding)] * len(spans.begin_s)
            for row in sent[sent[:, serving.PLACE] >= 0].tolist():
                record(_batch(self.name, row, places, len(periods)))
        settled = counted[serving.IN_TIME] + counted[serving.LATE] + counted[serving.DROPPED]
        assert settled == served, "requests are missing from the counts"
        if not trial:
            self._waiting = (arrival_s[served:], draw[served:])
        tally = Tally(
            received=len(arrival_s) - waited,
            goodput=float(counted[serving.GOODPUT]),
            wrong=float(counted[serving.IN_TIME] - counted[serving.GOODPUT]),
            late=int(counted[serving.LATE]),
            dropped=int(counted[serving.DROPPED]),
            queued=len(arrival_s) - served - waited,
            while_reconfiguring=int(counted[serving.RECONFIGURING]),
        )
        return tally, ran

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

    def _workers(
        self, periods: Sequence[_SteadyPeriod], lent: Sequence[Spans]
    ) -> serving.WorkerColumns:
        """Its own workers, then its standbys on slices lent to it."""
        batches, own = range(self.service.batch + 1), len(periods)
        every = [*periods, *(_SteadyPeriod(spans.worker, 0.0, 0.0) for spans in lent)]
        latency_s = [
            [self._latency_s(period, max(1, batch)) for batch in batches] for period in every
        ]
        entries = np.array([1] * own + [len(spans.begin_s) for spans in lent], np.int64)
        firsts = np.cumsum(entries) - entries
        return serving.WorkerColumns(
            np.repeat(np.array(latency_s).reshape(len(every), len(batches)), entries, axis=0),
            np.concatenate(
                [[period.ready_s for period in periods], *(spans.begin_s for spans in lent)]
            ),
            np.concatenate(
                [[period.until_s for period in periods], *(spans.end_s for spans in lent)]
            ),
            np.concatenate(
                [
                    [period.worker.free_s for period in periods],
                    np.full(entries[own:].sum(), -np.inf),
                ]
            ),
            own,
            np.repeat(firsts, entries),
        )

    def _latency_s(self, period: _SteadyPeriod, batch: int) -> float:
        worker = period.worker
        return self.service.latency_s(batch, worker.sms) / worker.duty * period.slower

    def _is_mine(self, worker: SimulatedWorker) -> bool:
        return worker.task.tenant == self.name and worker.task.kind is Kind.INFERENCE


def _batch(tenant: str, row: Sequence[float], places: Sequence[str], own: int) -> Batch:
    """A batch that was kept. `places`: of all workers, of which the first `own` are its own."""
    worker, start_s, end_s, rows, came_s, in_time, waiting = row
    return Batch(
        tenant,
        places[int(worker)],
        BatchKind.OWN if worker < own else BatchKind.LENT,
        int(rows),
        int(waiting),
        *(came_s, start_s, start_s, start_s, end_s, end_s),
        int(in_time),
    )


class Spans(NamedTuple):
    """Times of a worker."""

    worker: SimulatedWorker
    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]


def _spans_of(
    own: Sequence[SimulatedWorker],
    lent: Sequence[SimulatedWorker],
    sent: NDArray[np.float64],
    workers: serving.WorkerColumns,
) -> list[Spans]:
    """When batches ran, by worker; nothing if they were not kept.

    `sent`: rows of batches; negative where unused.
    """
    sent = sent[sent[:, serving.PLACE] >= 0]
    if not len(sent):
        return []
    first = workers.process[sent[:, serving.PLACE].astype(np.int64)]
    processes = dict(zip(np.unique(workers.process).tolist(), (*own, *lent), strict=True))
    return [
        Spans(worker, *sent[first == number][:, [serving.START, serving.END]].T)
        for number, worker in processes.items()
    ]


def idle_spans(
    workers: Sequence[SimulatedWorker], ran: Sequence[Spans], begin_s: float, end_s: float
) -> list[Spans]:
    """The times within a window in which workers could serve and had no batch."""
    idle = []
    for worker in workers:
        batches = [spans for spans in ran if spans.worker is worker]
        until_s = max(begin_s, min(end_s, worker.until_s))
        starts_s = np.concatenate([*(batch.begin_s for batch in batches), [until_s]])
        ends_s = np.concatenate(
            [[max(begin_s, worker.ready_s)], *(batch.end_s for batch in batches)]
        )
        # idle after the nth end until the next start, which also holds for batches that overlap
        idle.append(Spans(worker, np.sort(ends_s), np.sort(starts_s)))
    return [_longer_than_nothing(spans) for spans in idle]


def lent_to(tenant: str, idle: Iterable[Spans], standbys: Iterable[StandbyWorker]) -> list[Spans]:
    """The parts of idle times in which a standby of the tenant waits on the same slices."""
    mine = [standby for standby in standbys if standby.tenant == tenant]
    lent = [
        Spans(
            spans.worker, spans.begin_s.clip(worker.ready_s), spans.end_s.clip(None, worker.until_s)
        )
        for spans in idle
        for worker in mine
        if worker.holding == spans.worker.holding
    ]
    return [spans for spans in map(_longer_than_nothing, lent) if len(spans.begin_s)]


def _longer_than_nothing(spans: Spans) -> Spans:
    is_span = spans.begin_s < spans.end_s
    return Spans(spans.worker, spans.begin_s[is_span], spans.end_s[is_span])


@dataclass(frozen=True)
class _SteadyPeriod:
    """A time in which a worker takes new batches at one speed."""

    worker: SimulatedWorker
    ready_s: float
    until_s: float
    slower: float = 1.0


def _steady_periods(
    worker: SimulatedWorker, estimates: Sequence[tuple[SimulatedWorker, float]]
) -> Iterator[_SteadyPeriod]:
    """A worker's life, divided by the estimates on its instance, one after the other."""
    at_s = worker.ready_s
    for estimate, slower in estimates:
        begin_s, end_s = max(at_s, estimate.ready_s), min(worker.until_s, estimate.until_s)
        if estimate.holding == worker.holding and begin_s < end_s:
            yield _SteadyPeriod(worker, at_s, begin_s)
            yield _SteadyPeriod(worker, begin_s, end_s, slower)
            at_s = end_s
    yield _SteadyPeriod(worker, at_s, worker.until_s)


def ready() -> None:
    """Compile or load the kernels once, so that worker processes do not all compile them."""
    none = np.empty(0)
    workers = serving.WorkerColumns(np.ones((1, 2)), np.zeros(1), np.ones(1), np.zeros(1))
    now = serving.Conditions(
        0.0, 1.0, 1.0, 1, False, 1.0, np.ones(1), np.zeros(1), np.ones(1), none, none
    )
    with announced():
        serving.serve(np.zeros(1), np.zeros(1), False, workers, now)


def _spans(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of spans, sorted and disjoint."""
    union: list[tuple[float, float]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((begin, end))
    return union
