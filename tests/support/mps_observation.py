"""Observations for MPS policies with numbers that are easy: 10 requests per second and percent."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from migrator.core.catalogue import board
from migrator.core.problem import Holding, Share, Task
from migrator.core.profiles import Curve, Overhead, Profile, Service
from migrator.core.scenario import PeerLimits, ResizedTraining, ShareSizes
from migrator.policies.policy import Decision, Observation, RetrainingState, TenantView

BOARD = board("H200-141GB")
WHOLE = float(BOARD.sms)
ANY_SHARE = PeerLimits(0.05 * WHOLE, ShareSizes.ANY, ResizedTraining.FREE)
"""Shares from 5% on, and retrainings that can be resized at will: numbers that are easy."""


def service(tenant: str, latency_ms: float = 1.0, **changes: Any) -> Service:
    """One request at a time, `latency_ms` on all SMs, n times that on an n-th of them."""
    profile = Profile(
        model="linear",
        board=BOARD.name,
        latency_ms={1: Curve(((WHOLE, latency_ms),))},
        training_ratio=3.0,
        interference=changes.pop("interference", 0.0),
        contention=1.0,
        overhead=Overhead(0.0, 0.0, 0.0),
        provenance="made up",
    )
    plain: dict[str, Any] = {"slo_s": 1.0, "batch": 1}
    return Service(tenant=tenant, profile=profile, **(plain | changes))


def retraining(whole_s: float, **changes: Any) -> RetrainingState:
    """`whole_s` seconds on all SMs, n times that on an n-th; accuracy 0.5 rises to 0.9."""
    plain: dict[str, Any] = {
        "accuracy_now": 0.5,
        "accuracy_post": 0.9,
        "seconds": Curve(((WHOLE, whole_s),)),
        "done": 0.0,
        "holding": None,
    }
    return RetrainingState(**(plain | changes))


@dataclass
class Seen:
    """One tenant: its service, what it received per slot, what waits to be retrained."""

    service: Service
    history: Sequence[float] = ()
    retraining: RetrainingState | None = None
    overhead_s: float = 0.0

    def view(self) -> TenantView:
        return TenantView(
            service=self.service,
            history=np.array(self.history, dtype=np.float64),
            ahead=None,
            retraining=self.retraining,
            overhead_s=self.overhead_s,
            accuracy=self.retraining.accuracy_now if self.retraining else 0.5,
        )


def observation(
    *seen: Seen,
    slot_s: float = 1.0,
    slots: int = 200,
    slot: int = 0,
    held: tuple[Holding, ...] = (),
    limits: PeerLimits = ANY_SHARE,
) -> Observation:
    views = tuple(tenant.view() for tenant in seen)
    return Observation(BOARD, slot_s, slots, slot, views, held, limits=limits)


def shares(decision: Decision) -> list[Share]:
    """What is held in the first slot, all of it shares."""
    shares = [share for share in decision.slots[0] if isinstance(share, Share)]
    assert len(shares) == len(decision.slots[0])
    return shares


def percents(decision: Decision) -> dict[str, float]:
    """Task -> percent of the SMs over the time, rounded."""
    total: dict[Task, float] = defaultdict(float)
    for share in shares(decision):
        total[share.task] += share.percent * share.duty
    return {str(task): round(percent, 6) for task, percent in total.items()}
