"""Slowdown of a batch by the other processes on the GPU.

With MIG there is none, because every instance has its own memory. With MPS the neighbours take
bandwidth in proportion to the SMs they keep busy. The slowdown beside a training on
`INTERFERING_PART` of the SMs is measured per model. Unpartitioned, the busy processes take turns on
the GPU. A training is always busy; a serving process is busy while it has requests. A process is
slowed down by the load of all processes except itself, including those of its own tenant.

An estimate of a retraining runs on an instance where a worker serves. With MIG the two take turns;
with MPS the estimate is one more neighbour with the SMs of that share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from migrator.control.observation import Sharing
from migrator.core.instance import Kind
from migrator.core.profiles import INTERFERING_PART
from migrator.core.service import Service
from migrator.simulate.gpu import Worker

TRAINING_INTERFERENCE = 0.145
"""Measured slowdown of a training beside serving on `INTERFERING_PART` of the SMs, as a
fraction."""
TURNS_OF_SERVING = 0.65
"""Turns per turn of a training that a neighbour takes if it always serves; measured without MPS."""


def training_speed(
    sharing: Sharing,
    board_sms: int,
    worker: Worker,
    alive: Sequence[Worker],
    active: Mapping[str, float],
) -> float:
    """The share of its full speed at which a training runs. `active`: busy share of each tenant."""
    if sharing is Sharing.MIG and worker.estimating:
        return 1 / (1 + TURNS_OF_SERVING * active[worker.task.tenant])
    if sharing is Sharing.MIG:
        return worker.duty
    if sharing is Sharing.UNPARTITIONED:
        others = sum(each.task.kind is Kind.RETRAINING for each in alive if each is not worker)
        return 1 / (1 + others + TURNS_OF_SERVING * sum(active.values()))
    beside = sum(_pressure(sharing, board_sms, alive, active).values())
    beside -= worker.sms / board_sms * worker.duty
    return worker.duty / (1 + TRAINING_INTERFERENCE * max(0.0, beside) / INTERFERING_PART)


def activity(service: Service, workers: Sequence[Worker], rate_rps: float) -> float:
    """The share of the time for which a tenant's serving processes are busy."""
    mine = [each for each in workers if _serves(each, service.tenant)]
    able = sum(service.capability_rps(each.sms) * each.duty for each in mine)
    return min(1.0, rate_rps / able) if able else 0.0


def slowdowns(
    sharing: Sharing,
    board_sms: int,
    services: Sequence[Service],
    workers: Sequence[Sequence[Worker]],
    received_rps: Mapping[str, NDArray[np.float64]],
) -> dict[str, NDArray[np.float64]]:
    """Per tenant, the factor per slot by which its batches take longer. `workers` are per slot."""
    found = {each.tenant: np.ones(len(workers)) for each in services}
    if sharing is Sharing.MIG:
        return found
    for slot, alive in enumerate(workers):
        pressure = _pressure(
            sharing,
            board_sms,
            alive,
            {
                each.tenant: activity(each, alive, float(received_rps[each.tenant][slot]))
                for each in services
            },
        )
        for service in services:
            own = pressure[service.tenant, Kind.INFERENCE]
            own /= max(1, sum(_serves(each, service.tenant) for each in alive))
            beside = sum(pressure.values()) - own
            found[service.tenant][slot] += beside * _sensitivity(sharing, service)
    return found


def slowdown_by_estimate(service: Service, sms: float, board_sms: int) -> float:
    """The factor by which batches take longer on a MIG instance that an estimate shares.

    A turn of the estimate delays a batch by the seconds that were measured on a whole GPU, and
    turns take at least the part of the time that they took there.
    """
    delay_s = service.profile.contention * service.latency_s(1, board_sms)
    turn = delay_s / service.latency_s(service.batch, sms)
    return 1 + max(turn, 1 / TURNS_OF_SERVING)


def _sensitivity(sharing: Sharing, service: Service) -> float:
    if sharing is Sharing.UNPARTITIONED:
        return service.profile.contention
    return service.profile.interference / INTERFERING_PART


def _pressure(
    sharing: Sharing, board_sms: int, alive: Sequence[Worker], active: Mapping[str, float]
) -> dict[tuple[str, Kind], float]:
    """The load of each task on the others: the share of the GPU it keeps busy."""
    pressure = {(tenant, kind): 0.0 for tenant in active for kind in Kind}
    for worker in alive:
        busy = 1.0 if worker.task.kind is Kind.RETRAINING else active[worker.task.tenant]
        part = worker.sms / board_sms * worker.duty
        task = (worker.task.tenant, worker.task.kind)
        if sharing is Sharing.UNPARTITIONED:
            pressure[task] = busy
        else:
            pressure[task] += part * busy
    return pressure


def _serves(worker: Worker, tenant: str) -> bool:
    return worker.task.tenant == tenant and worker.task.kind is Kind.INFERENCE
