"""How much slower a batch is for what runs beside it.

MIG gives every instance its own memory: nothing. Under MPS the neighbours take bandwidth in
proportion to the SMs they keep busy; the slowdown beside a training on `INTERFERING_PART` of
the SMs is measured per model. Unpartitioned, the GPU goes round among those that are busy.
A training is always busy, serving as much of the time as it has requests for; what a process
suffers is everybody's pressure but its own, its siblings' too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from migrator.core.instance import Kind
from migrator.core.profile import INTERFERING_PART
from migrator.core.service import Service
from migrator.policies.policy import Sharing
from migrator.simulate.lives import Life

TRAINING_INTERFERENCE = 0.145
"""Measured: a training is slower by this part beside serving on `INTERFERING_PART` of the SMs."""
TURNS_OF_SERVING = 0.65
"""Measured without MPS: so many turns of a training go to a neighbour that always serves."""


def training_speed(
    sharing: Sharing, board_sms: int, life: Life, alive: Sequence[Life], active: Mapping[str, float]
) -> float:
    """The part of its own speed at which a training runs; `active`: how busy each tenant serves."""
    if sharing is Sharing.MIG:
        return life.duty
    if sharing is Sharing.UNPARTITIONED:
        others = sum(each.task.kind is Kind.RETRAINING for each in alive if each is not life)
        return 1 / (1 + others + TURNS_OF_SERVING * sum(active.values()))
    beside = sum(_pressure(sharing, board_sms, alive, active).values())
    beside -= life.sms / board_sms * life.duty
    return life.duty / (1 + TRAINING_INTERFERENCE * max(0.0, beside) / INTERFERING_PART)


def activity(service: Service, lives: Sequence[Life], rate_rps: float) -> float:
    """The part of the time a tenant's serving processes are busy."""
    mine = [each for each in lives if _serves(each, service.tenant)]
    able = sum(service.capability_rps(each.sms) * each.duty for each in mine)
    return min(1.0, rate_rps / able) if able else 0.0


def slowdowns(
    sharing: Sharing,
    board_sms: int,
    services: Sequence[Service],
    lives: Sequence[Sequence[Life]],
    received_rps: Mapping[str, NDArray[np.float64]],
) -> dict[str, NDArray[np.float64]]:
    """Tenant -> the factor per slot by which its batches take longer; `lives` are per slot."""
    found = {each.tenant: np.ones(len(lives)) for each in services}
    if sharing is Sharing.MIG:
        return found
    for slot, alive in enumerate(lives):
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


def _sensitivity(sharing: Sharing, service: Service) -> float:
    if sharing is Sharing.UNPARTITIONED:
        return service.profile.contention
    return service.profile.interference / INTERFERING_PART


def _pressure(
    sharing: Sharing, board_sms: int, alive: Sequence[Life], active: Mapping[str, float]
) -> dict[tuple[str, Kind], float]:
    """What each task puts on the others: the part of the GPU it keeps busy."""
    pressure = {(tenant, kind): 0.0 for tenant in active for kind in Kind}
    for life in alive:
        busy = 1.0 if life.task.kind is Kind.RETRAINING else active[life.task.tenant]
        part = life.sms / board_sms * life.duty
        task = (life.task.tenant, life.task.kind)
        if sharing is Sharing.UNPARTITIONED:
            pressure[task] = busy
        else:
            pressure[task] += part * busy
    return pressure


def _serves(life: Life, tenant: str) -> bool:
    return life.task.tenant == tenant and life.task.kind is Kind.INFERENCE
