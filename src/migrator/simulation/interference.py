"""How much processes on one GPU slow each other down.

With MIG they do not, because every instance has its own memory. With MPS the neighbours take
bandwidth in proportion to the SMs they keep busy. The slowdown beside a training on
`INTERFERING_PART` of the SMs is measured per model. Unpartitioned, the busy processes take turns on
the GPU: a turn of a training delays a batch by the measured `contention`, a turn of a process that
serves is one batch, or that time if it is shorter. A training is always busy; a serving process is
busy while it has requests. A process is slowed down by the load of all processes except itself,
including those of its own tenant.

What standbys on lent slices add to the load is estimated per slot from the surplus of requests.

An estimate of a retraining runs on an instance where a worker serves. With MIG the two take turns;
with MPS the estimate is one more neighbour with the SMs of that share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.control.observation import Sharing
from migrator.core.problem import Kind
from migrator.core.profiles import INTERFERING_PART, TRAINING_INTERFERENCE, Service
from migrator.simulation.gpu import SimulatedWorker

TURNS_OF_SERVING = 0.65
"""Turns per turn of a training that a neighbour takes if it always serves; measured without MPS."""
_ROUNDS, _SETTLED = 30, 1e-4
"""Most repetitions until slowdowns have settled, and the change from which they have."""


class BatchSlowdown(NamedTuple):
    """By how much batches took longer than alone on their SMs in a live run."""

    fixed_s: float
    """Every batch."""
    training: float
    """The part by which a batch takes longer if the whole GPU trains."""
    serving: float
    """The same if the whole GPU serves."""


def training_speed(
    sharing: Sharing,
    board_sms: int,
    worker: SimulatedWorker,
    alive: Sequence[SimulatedWorker],
    active: Mapping[str, float],
    *,
    limited: bool = True,
    interference: float = TRAINING_INTERFERENCE,
) -> float:
    """The share of its full speed at which a training runs. `active`: busy share of each tenant.

    `limited`: MPS processes have no more SMs together than the GPU has. `interference`: that of
    the model's profile.
    """
    if sharing is Sharing.MIG and worker.estimating:
        return 1 / (1 + TURNS_OF_SERVING * active[worker.task.tenant])
    if sharing is Sharing.MIG:
        return worker.duty
    if sharing is Sharing.UNPARTITIONED:
        others = sum(
            process.task.kind is Kind.RETRAINING for process in alive if process is not worker
        )
        serving = sum(
            active[process.task.tenant] for process in alive if process.task.kind is Kind.INFERENCE
        )
        return 1 / (1 + others + TURNS_OF_SERVING * serving)
    busy = sum(_pressure(board_sms, alive, active).values())
    beside = max(0.0, busy - worker.sms / board_sms * worker.duty)
    slower = 1 + interference * beside / INTERFERING_PART
    return worker.duty / slower / (max(1.0, busy) if limited else 1.0)


def activities(
    sharing: Sharing,
    board_sms: int,
    services: Sequence[Service],
    alive: Sequence[SimulatedWorker],
    rates_rps: Mapping[str, float],
    *,
    limited: bool = True,
) -> dict[str, float]:
    """Per tenant, the share of the time for which its serving processes are busy.

    `limited`: MPS processes have no more SMs together than the GPU has.
    """
    if sharing is Sharing.UNPARTITIONED:
        return _turns(board_sms, services, alive, rates_rps)[0]
    loads = _loads(board_sms, services, alive)
    if sharing is Sharing.MIG:
        return {name: load.busy(rates_rps[name]) for name, load in loads.items()}
    return _beside(loads, _training(board_sms, alive), rates_rps, limited=limited)[0]


@dataclass(frozen=True)
class _Load:
    """The serving processes of a tenant in a slot."""

    part: float
    """Their share of the GPU."""
    count: int
    able_rps: float
    """What they answer without neighbours."""
    full_s: float
    """Seconds of a full batch without neighbours, in the mean; 0 without processes."""
    interference: float

    def busy(self, rate_rps: float) -> float:
        """The share of the time for which they have batches."""
        return min(1.0, rate_rps / self.able_rps) if self.able_rps else 0.0


def _loads(
    board_sms: int, services: Sequence[Service], alive: Sequence[SimulatedWorker]
) -> dict[str, _Load]:
    loads = {}
    for service in services:
        mine = [worker for worker in alive if _serves(worker, service.tenant)]
        full_s = [
            service.latency_s(max(1, service.full_batch(worker.sms)), worker.sms) for worker in mine
        ]
        loads[service.tenant] = _Load(
            sum(worker.sms * worker.duty for worker in mine) / board_sms,
            len(mine),
            sum(service.capability_rps(worker.sms) * worker.duty for worker in mine),
            sum(full_s) / max(1, len(mine)),
            service.profile.interference / INTERFERING_PART,
        )
    return loads


def _training(board_sms: int, alive: Sequence[SimulatedWorker]) -> float:
    """The share of the GPU that trains."""
    trained = (worker for worker in alive if worker.task.kind is Kind.RETRAINING)
    return sum(worker.sms / board_sms * worker.duty for worker in trained)


def _beside(
    loads: Mapping[str, _Load],
    training: float,
    rates_rps: Mapping[str, float],
    *,
    limited: bool,
    lends: bool = False,
    measured: BatchSlowdown | None = None,
) -> tuple[dict[str, float], dict[str, float]]:
    """How busy the serving processes of each tenant are under MPS, and their slowdown.

    As without partitions: slower batches keep processes busy for longer.
    """
    active: dict[str, float] = {}
    slower = dict.fromkeys(loads, 1.0)
    fixed_s = measured.fixed_s if measured else 0.0
    for _ in range(_ROUNDS):
        before = slower
        wanted_rps = {
            name: rates_rps[name] * (slower[name] + (fixed_s / load.full_s if load.full_s else 0.0))
            for name, load in loads.items()
        }
        active = {name: load.busy(wanted_rps[name]) for name, load in loads.items()}
        serving = sum(load.part * active[name] for name, load in loads.items())
        if lends:
            serving += _borrowed(loads, wanted_rps, active)
        slower = {}
        for name, load in loads.items():
            others = serving - load.part * active[name] / max(1, load.count)
            parts = (measured.training, measured.serving) if measured else (load.interference,) * 2
            slower[name] = 1 + training * parts[0] + others * parts[1]
            slower[name] *= max(1.0, serving + training) if limited else 1.0
        if all(abs(slower[name] - before[name]) < _SETTLED for name in loads):
            break
    return active, slower


def _turns(
    board_sms: int,
    services: Sequence[Service],
    alive: Sequence[SimulatedWorker],
    rates_rps: Mapping[str, float],
) -> tuple[dict[str, float], dict[str, float]]:
    """How busy the serving processes of each tenant are without partitions, and their slowdown.

    Slower batches keep processes busy for longer, which makes batches slower: repeated until that
    settles.
    """
    trainings = sum(process.task.kind is Kind.RETRAINING for process in alive)
    many = {
        service.tenant: sum(_serves(worker, service.tenant) for worker in alive)
        for service in services
    }
    alone_s = {service.tenant: service.latency_s(1, board_sms) for service in services}
    delay_s = {
        service.tenant: service.profile.contention * alone_s[service.tenant] for service in services
    }
    batch = {service.tenant: max(1, service.full_batch(board_sms)) for service in services}
    batch_s = {
        service.tenant: service.latency_s(batch[service.tenant], board_sms) for service in services
    }
    busy = {service.tenant: 0.0 for service in services}
    took_s = dict(batch_s)
    for _ in range(_ROUNDS):
        for name, alone in batch_s.items():
            beside_s = trainings * delay_s[name]
            for other, number in many.items():
                others = number - (other == name)
                beside_s += max(0, others) * busy[other] * min(batch_s[other], delay_s[name])
            took_s[name] = alone + beside_s
            able_rps = many[name] * batch[name] / took_s[name]
            busy[name] = min(1.0, rates_rps[name] / able_rps) if able_rps else 0.0
    return busy, {name: seconds / batch_s[name] for name, seconds in took_s.items()}


def slowdowns(
    sharing: Sharing,
    board_sms: int,
    services: Sequence[Service],
    workers: Sequence[Sequence[SimulatedWorker]],
    received_rps: Mapping[str, NDArray[np.float64]],
    *,
    limited: bool = True,
    lends: bool = False,
    measured: BatchSlowdown | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Per tenant, the factor per slot by which its batches take longer. `workers` are per slot.

    `limited`: MPS processes have no more SMs together than the GPU has. `lends`: standbys serve on
    idle slices. `measured`: what replaces the interference of the profiles under MPS.
    """
    factors = {service.tenant: np.ones(len(workers)) for service in services}
    if sharing is Sharing.MIG:
        return factors
    for slot, alive in enumerate(workers):
        rates_rps = {name: float(rates[slot]) for name, rates in received_rps.items()}
        if sharing is Sharing.UNPARTITIONED:
            for name, turns in _turns(board_sms, services, alive, rates_rps)[1].items():
                factors[name][slot] = turns
            continue
        loads, training = _loads(board_sms, services, alive), _training(board_sms, alive)
        slower_of = _beside(
            *(loads, training, rates_rps), limited=limited, lends=lends, measured=measured
        )[1]
        for name, slower in slower_of.items():
            factors[name][slot] = slower
    return factors


def _borrowed(
    loads: Mapping[str, _Load], rates_rps: Mapping[str, float], active: Mapping[str, float]
) -> float:
    """The share of the GPU that standbys keep busy: the surplus of requests, on idle slices."""
    wanted = idle = 0.0
    for name, load in loads.items():
        idle += load.part * (1 - active[name])
        if load.able_rps:
            wanted += load.part * max(0.0, rates_rps[name] / load.able_rps - 1)
    return min(wanted, idle)


def slowdown_by_estimate(service: Service, sms: float, board_sms: int) -> float:
    """The factor by which batches take longer on a MIG instance that an estimate shares.

    A turn of the estimate delays a batch by the seconds that were measured on a whole GPU, and
    turns take at least the part of the time that they took there.
    """
    delay_s = service.profile.contention * service.latency_s(1, board_sms)
    turn = delay_s / service.latency_s(service.batch, sms)
    return 1 + max(turn, 1 / TURNS_OF_SERVING)


def _pressure(
    board_sms: int, alive: Sequence[SimulatedWorker], active: Mapping[str, float]
) -> dict[tuple[str, Kind], float]:
    """The load of each task on the others: the share of the GPU it keeps busy."""
    pressure = {(tenant, kind): 0.0 for tenant in active for kind in Kind}
    for worker in alive:
        busy = 1.0 if worker.task.kind is Kind.RETRAINING else active[worker.task.tenant]
        part = worker.sms / board_sms * worker.duty
        pressure[worker.task.tenant, worker.task.kind] += part * busy
    return pressure


def _serves(worker: SimulatedWorker, tenant: str) -> bool:
    return worker.task.tenant == tenant and worker.task.kind is Kind.INFERENCE
