"""Gpulet (ATC'22): MPS, a GPU in at most two partitions, planned every 20 seconds.

Models are placed one by one, in descending order of rate times objective: partitions of the model's
knee until the residue, then the smallest share that serves it. A model goes best-fit into a free
partition, else takes whatever is free, else takes turns with others on a partition (duty cycle,
occupancy at most 1). A share serves a rate if its saturated throughput does, and if 0.85 of the
rate is served beside a busy neighbour, by the measured interference.

The rate is a moving average whose span is an epoch. A plan takes an epoch to prepare: the plan that
takes effect at an epoch boundary uses the observations up to the boundary before it.

Our adaptations:
- Throughputs are those of the number of processes that serves most on a share, as for every MPS
  policy. That makes the knee a matter of rounding: of equally steep shares the largest is the knee,
  so that a model is not cut into more partitions than it needs.
- If the models do not fit, all rates are lowered by the same factor until they do; if even that
  does not help, the models take turns on two halves.
- A residue is served at the saturated batch of its share: our workers fill a batch with waiting
  requests and never wait for it to fill, so there is no batch to choose. Memory is not capped: the
  models together take a small part of the board's.
- Turns come in twentieths. A process that has its SMs for a part of the time is slower by that
  factor.
- Gpulet is an inference server without training. While retrainings wait or run, the models of a
  partition hold the smallest share that serves them, and the retrainings split the remaining SMs
  equally. If none remain, they split the remaining turns on the partition that has most. Otherwise
  the models have the whole GPU. When a retraining ends, the policy divides the remainder again but
  keeps the epoch's rates.
- A running retraining keeps its share, unless it ends sooner if it is restarted on a larger one;
  the models are placed on the rest.
- A model without requests is planned with one request per epoch, one without history with what an
  equal part of the GPU serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from migrator.core.catalogue import Board
from migrator.core.problem import Share
from migrator.core.profiles import INTERFERING_PART, Service
from migrator.core.scenario import PeerLimits, ResizedTraining
from migrator.policies import mps_workers
from migrator.policies.mps_workers import PerService
from migrator.policies.policy import Decision, Observation, Policy, Sharing, TenantView

PERCENTS = (20.0, 40.0, 50.0, 60.0, 80.0, 100.0)
"""Shares of a partition; with the runtime's shares, the nearest whole multiples of the smallest."""
EPOCH_S = 20.0
MAX_BATCH = 32
TURNS = 20
"""Number of parts into which the time of a partition is divided."""
SERVED_PART = 0.85
"""Share of the rate that must be served beside a busy neighbour."""
_HALF = 50.0
_FORGOTTEN = 5
"""Epochs after which an observation has no weight."""


class Gpulet(Policy):
    """Two partitions, models placed by best fit."""

    name = "gpulet"
    summary = "Gpulet: at most two MPS partitions, models placed by best fit every 20 s"
    sharing = Sharing.MPS
    every_s = EPOCH_S

    def decide(self, observation: Observation) -> Decision:
        """The plan of this epoch, with retraining in the remaining room."""
        board, limits = observation.board, observation.limits
        models = [_model(view.service, board, limits) for view in observation.tenants]
        demands = [
            (model, _rate_rps(view, observation))
            for view, model in zip(observation.tenants, models, strict=True)
        ]
        room = 100 - mps_workers.reserved_percent(observation)
        by_load = sorted(demands, key=lambda demand: -demand[1] * demand[0].service.slo_s)
        partitions = _plan(by_load, room)
        return Decision((tuple(_shares(partitions, observation)),))


@lru_cache(maxsize=64)
def percents(board: Board, limits: PeerLimits) -> tuple[float, ...]:
    """The shares that a partition may have, ascending; each but the last has one that fills the
    GPU beside it."""
    if limits.allows_any_share(board):
        return PERCENTS
    step = limits.least_percent(board)
    steps = int(100 / step + 1e-6)
    small = {max(1, int(percent * steps / 100 + 0.5)) for percent in PERCENTS if percent <= _HALF}
    multiples = {*small, *(steps - part for part in small if part < steps)}
    return (*(multiple * step for multiple in sorted(multiples)), 100.0)


@dataclass(eq=False)
class _ModelThroughput:
    """Throughput of a tenant's model by share; every value is computed once."""

    service: Service
    board: Board
    limits: PeerLimits
    known_rps: dict[tuple[float, int, bool], float] = field(default_factory=dict)

    @cached_property
    def knee(self) -> float:
        """The share with the steepest throughput."""
        return max(
            self.percents,
            key=lambda percent: (round(self.throughput_rps(percent) / percent, 6), percent),
        )

    @property
    def percents(self) -> tuple[float, ...]:
        """The shares that a partition may have."""
        return percents(self.board, self.limits)

    def throughput_rps(self, percent: float, turns: int = TURNS, beside: bool = False) -> float:
        """Requests per second on a share for some of the turns, `beside` a busy neighbour."""
        key = (percent, turns, beside)
        if key not in self.known_rps:
            slower = TURNS / turns * (self._slowdown(percent) if beside else 1.0)
            slowed = self._slower(slower)
            served_rps = mps_workers.capability_rps(slowed, self.board, percent, self.limits)
            self.known_rps[key] = served_rps / slower
        return self.known_rps[key]

    def serves(self, rate_rps: float, percent: float, turns: int = TURNS) -> bool:
        """Whether the rate is served, and `SERVED_PART` of it beside a busy neighbour."""
        return (
            self.throughput_rps(percent, turns) >= rate_rps * (1 - 1e-9)
            and self.throughput_rps(percent, turns, beside=True) >= SERVED_PART * rate_rps
        )

    def size(self, rate_rps: float) -> float:
        """The smallest share that serves the rate; the largest if none does."""
        fits = (percent for percent in self.percents if self.serves(rate_rps, percent))
        return next(fits, self.percents[-1])

    def turns(self, rate_rps: float, percent: float) -> int:
        """The fewest turns that serve the rate; `TURNS` + 1 if none do."""
        fits = (turns for turns in range(1, TURNS + 1) if self.serves(rate_rps, percent, turns))
        return next(fits, TURNS + 1)

    def serving(self, percent: float, duty: float) -> list[Share]:
        """Its processes on a share for a part of the time."""
        slowed = self._slower(self._slowdown(percent) / duty)
        shares = mps_workers.serving(slowed, self.board, percent, self.limits)
        return [replace(share, duty=duty) for share in shares]

    def _slower(self, factor: float) -> Service:
        """The service with batches slower by a factor, expressed as a shorter objective."""
        batch = min(MAX_BATCH, self.service.batch)
        return replace(self.service, slo_s=self.service.slo_s / factor, batch=batch)

    def _slowdown(self, percent: float) -> float:
        return 1 + self.service.profile.interference * (1 - percent / 100) / INTERFERING_PART


_model = PerService(_ModelThroughput)


@dataclass(frozen=True)
class _GpuPartition:
    """Part of the GPU and the models on it, each with the rate it serves there."""

    percent: float
    models: tuple[tuple[_ModelThroughput, float], ...]

    def turns(self, percent: float) -> list[int]:
        """The fewest turns that each model needs on that share."""
        return [model.turns(rate_rps, percent) for model, rate_rps in self.models]

    @property
    def needs(self) -> float:
        """The smallest share on which its models have enough turns; all of it if none does."""
        smaller = (percent for percent in self.models[0][0].percents if percent < self.percent)
        return next(
            (percent for percent in smaller if sum(self.turns(percent)) <= TURNS), self.percent
        )

    def with_model(self, model: _ModelThroughput, rate_rps: float) -> _GpuPartition:
        """The partition with one more model that takes turns on it."""
        return replace(self, models=(*self.models, (model, rate_rps)))

    def holds(self, model: _ModelThroughput) -> bool:
        """Whether the model is on it."""
        return any(other is model for other, _ in self.models)


_Demands = Sequence[tuple[_ModelThroughput, float]]


def _rate_rps(view: TenantView, observation: Observation) -> float:
    """The moving average at the boundary before the last one, or of the available history."""
    if not len(view.history):
        equal_rps = mps_workers.capability_rps(
            view.service,
            observation.board,
            100 / len(observation.tenants),
            observation.limits,
        )
        return max(1 / EPOCH_S, equal_rps)
    epoch = max(1, round(EPOCH_S / observation.slot_s))
    ago = epoch + observation.slot % epoch
    seen = view.history[-ago - _FORGOTTEN * epoch : -ago]
    if not len(seen):
        seen = view.history[-ago:]
    weights = (1 - 2 / (epoch + 1)) ** np.arange(len(seen))[::-1]
    rate_rps = float(weights @ seen / weights.sum()) / observation.slot_s
    return max(1 / EPOCH_S, rate_rps)


def _plan(demands: _Demands, room: float) -> list[_GpuPartition]:
    """Partitions for all rates, or for as large a fraction of all rates as fits."""
    for part in range(TURNS, 0, -1):
        placed = _placed([(model, rate_rps * part / TURNS) for model, rate_rps in demands], room)
        if placed:
            return placed
    if len(demands) == 1:
        return [_GpuPartition(room, tuple(demands))]
    return [_GpuPartition(room / 2, tuple(demands[half::2])) for half in range(2)]


def _placed(demands: _Demands, room: float) -> list[_GpuPartition] | None:
    """Every model on its partitions of `room` percent; None if they do not fit."""
    free, used = [room], list[_GpuPartition]()
    for model, rate_rps in demands:
        residue_rps = rate_rps
        while free and residue_rps > 1e-9:
            percent = _take(free, min(model.knee, model.size(residue_rps)), room)
            if model.serves(residue_rps, percent):
                served_rps = residue_rps
            else:
                served_rps = min(residue_rps, model.throughput_rps(percent, beside=True))
            if served_rps <= 0:
                return None
            used.append(_GpuPartition(percent, ((model, served_rps),)))
            residue_rps -= served_rps
        if residue_rps > 1e-9 and not _merge(used, model, residue_rps):
            return None
    return used


def _take(free: list[float], size: float, whole: float) -> float:
    """Take the smallest free partition that is large enough, else the largest; split the
    `whole`."""
    room = min((part for part in free if part >= size), default=max(free))
    free.remove(room)
    if room < whole or size >= room:
        return room
    free.append(whole - size)
    return size


def _merge(used: list[_GpuPartition], model: _ModelThroughput, rate_rps: float) -> bool:
    """Add the model to the partition where the least time is then left; False if none has room."""
    joined = {
        place: sum(partition.with_model(model, rate_rps).turns(partition.percent))
        for place, partition in enumerate(used)
        if not partition.holds(model)
    }
    fitting = [(-turns, place) for place, turns in joined.items() if turns <= TURNS]
    if not fitting:
        return False
    place = min(fitting)[1]
    used[place] = used[place].with_model(model, rate_rps)
    return True


def _shares(partitions: list[_GpuPartition], observation: Observation) -> Iterable[Share]:
    """The models' processes, and those of the retrainings in the remaining room."""
    waiting = [view.name for view in observation.tenants if view.retraining]
    if not waiting:
        whole = 100 - sum(partition.percent for partition in partitions)
        largest = max(partitions, key=lambda partition: partition.percent)
        return _numbered(
            share
            for partition in partitions
            for share in _in_turns(
                partition, partition.percent + (whole if partition is largest else 0.0)
            )
        )
    percent = 100 - sum(partition.needs for partition in partitions)
    if percent >= observation.limits.least_percent(observation.board) - 1e-6:
        serving = [
            share for partition in partitions for share in _in_turns(partition, partition.needs)
        ]
        parts = mps_workers.equal_parts(waiting, percent, observation.board, observation.limits)
        return _numbered([*serving, *mps_workers.trainings(observation, parts)])
    return _numbered(_between_turns(partitions, waiting, observation))


def _between_turns(
    partitions: list[_GpuPartition], waiting: Sequence[str], observation: Observation
) -> Iterable[Share]:
    """No SMs are left: retraining takes the remaining turns on the partition with most, if any."""
    idle = [
        (TURNS - sum(partition.turns(partition.percent))) * partition.percent
        for partition in partitions
    ]
    place = idle.index(max(idle))
    for partition in partitions:
        if partition is not partitions[place] or idle[place] <= 0:
            yield from _in_turns(partition, partition.percent)
    if idle[place] > 0:
        chosen = partitions[place]
        needed = chosen.turns(chosen.percent)
        for (model, _), turns in zip(chosen.models, needed, strict=True):
            yield from model.serving(chosen.percent, turns / TURNS)
        duty = (TURNS - sum(needed)) / TURNS / len(waiting)
        board, limits = observation.board, observation.limits
        percent = mps_workers.process_percent(board, limits, chosen.percent)
        running = mps_workers.running_shares(observation)
        for name in waiting:
            wanted = mps_workers.training(name, percent, duty)
            yield _kept(running.get(name, wanted), wanted, limits)


def _kept(running: Share, wanted: Share, limits: PeerLimits) -> Share:
    """The running share where it takes no more SMs than the wanted one; else that."""
    less = running.percent * running.duty <= wanted.percent * wanted.duty
    return running if less and limits.resized_training is ResizedTraining.RESTARTS else wanted


def _in_turns(partition: _GpuPartition, percent: float) -> Iterable[Share]:
    """Divide all the time of a partition among its models, in proportion to the turns they need."""
    turns = partition.turns(percent)
    for (model, _), mine in zip(partition.models, turns, strict=True):
        yield from model.serving(percent, mine / sum(turns))


def _numbered(shares: Iterable[Share]) -> list[Share]:
    """Give the processes of a task distinct numbers, also across partitions."""
    counts: dict[object, int] = {}
    numbered = []
    for share in shares:
        number = counts.get(share.task, 0)
        counts[share.task] = number + 1
        numbered.append(replace(share, number=number))
    return numbered


POLICIES = (Gpulet(),)
