"""Durations of a simulated run, from the profiles of its tenants."""

# ruff: noqa: ARG002 (several implementations of one protocol)

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from migrator.control.observation import Policy, Sharing, Sight, sharing_on
from migrator.core.problem import Holding
from migrator.core.profiles import Curve, Overhead
from migrator.core.scenario import Scenario


@dataclass(frozen=True)
class Removal:
    """One attempt to destroy an instance."""

    seconds: float
    why: str = ""
    """Why it failed; empty if the instance was destroyed."""


class Durations(Protocol):
    """Seconds of every step that takes time in a live run."""

    def plan_s(self, window: int) -> float:
        """From the question to the policy's answer."""

    def create_s(self, window: int, tenant: str, holding: Holding) -> float:
        """Creating an instance for a tenant."""

    def destroy(self, window: int, holding: Holding) -> Removal:
        """Destroying an instance."""

    def warm_s(self, window: int, tenant: str, holding: Holding) -> float:
        """From the instruction to warm a worker until it serves."""

    def take_over_s(self, window: int, tenant: str, holding: Holding) -> float:
        """From the instruction to warm until a worker that is ready serves."""

    def stop_s(self, window: int, holding: Holding) -> float:
        """Ending a drained worker."""

    def training_start_s(self, window: int, tenant: str) -> float:
        """Until a retraining process starts to train."""

    def training_s(self, window: int, tenant: str, curve: Curve, sms: float) -> float | None:
        """The whole retraining beside its neighbours; None: derive it from the curve and the
        neighbours."""

    def slower(self, window: int, tenant: str) -> float:
        """Factor on a duration derived from the curve."""

    def swap_s(self, window: int, tenant: str) -> float:
        """From the end of a retraining until its model serves."""


PLAN_S, DECISION_S = 0.3, 0.05
"""Seconds until a policy that plans, and one that does not, has answered: the median of live runs
on an H200."""
ESTIMATE_PART = 0.084
"""Time of an estimate over that of its retraining on the same SMs, on an H200."""
RETRAINING_SPREAD = 0.1
"""Relative standard deviation of retrainings of one tenant on one size in those runs."""


@dataclass(frozen=True)
class ProfileDurations:
    """Durations from the tenants' profiles. Steps without a profile take no time.

    Retrainings take longer or shorter than the profile says, drawn by `seed`, window and tenant:
    the same for every policy.
    """

    overheads: Mapping[str, Overhead]
    mig: bool
    prepared: bool
    answer_s: float = 0.0
    spread: float = 0.0
    seed: int = 0
    longer: float = 1.0
    """Factor on retrainings, which policies do not know."""

    def plan_s(self, window: int) -> float:
        """The same for every question."""
        return self.answer_s

    def create_s(self, window: int, tenant: str, holding: Holding) -> float:
        """The driver's time, which includes destroying the previous instance; zero for shares."""
        return self.overheads[tenant].create_s if self.mig else 0.0

    def destroy(self, window: int, holding: Holding) -> Removal:
        """Zero: included in the time to create."""
        return Removal(0.0)

    def warm_s(self, window: int, tenant: str, holding: Holding) -> float:
        """Loading the model, and starting its process if none is prepared."""
        return self.overheads[tenant].total_s(mig=False, prepared=self.prepared)

    def take_over_s(self, window: int, tenant: str, holding: Holding) -> float:
        """Zero: not part of a profile."""
        return 0.0

    def stop_s(self, window: int, holding: Holding) -> float:
        """Zero: not part of a profile."""
        return 0.0

    def training_start_s(self, window: int, tenant: str) -> float:
        """The time to warm a worker."""
        return self.overheads[tenant].total_s(mig=False, prepared=self.prepared)

    def training_s(self, window: int, tenant: str, curve: Curve, sms: float) -> float | None:
        """None: derived from the curve."""
        return None

    def slower(self, window: int, tenant: str) -> float:
        """A lognormal factor with mean `longer`."""
        if not self.spread:
            return self.longer
        drawn = np.random.default_rng([self.seed, window, *tenant.encode()])
        sigma = math.sqrt(math.log1p(self.spread**2))
        return self.longer * float(drawn.lognormal(-(sigma**2) / 2, sigma))

    def swap_s(self, window: int, tenant: str) -> float:
        """Zero: swapping weights takes milliseconds."""
        return 0.0


def overheads_s(scenario: Scenario, policy: Policy) -> dict[str, float]:
    """Per tenant, seconds until a new instance serves under the policy's way of sharing the GPU."""
    mig = sharing_on(policy, scenario.board) is Sharing.MIG
    prepared = _has_prepared_workers(scenario, policy)
    return {
        tenant.name: tenant.service.profile.overhead.total_s(mig=mig, prepared=prepared)
        for tenant in scenario.tenants
    }


def _has_prepared_workers(scenario: Scenario, policy: Policy) -> bool:
    """Whether worker processes are started in advance for the policy.

    Starting them for instances to come is part of policies that look ahead.
    """
    return scenario.prepared and (scenario.peers.prepared or policy.sight is not Sight.NOTHING)


def profile_durations(
    scenario: Scenario, policy: Policy, spread: float, longer: float = 1.0
) -> ProfileDurations:
    """Durations from the profiles of the tenants. `spread`, `longer`: of those of retrainings."""
    return ProfileDurations(
        {tenant.name: tenant.service.profile.overhead for tenant in scenario.tenants},
        sharing_on(policy, scenario.board) is Sharing.MIG,
        _has_prepared_workers(scenario, policy),
        DECISION_S if policy.sight is Sight.NOTHING else PLAN_S,
        spread,
        scenario.seed,
        longer,
    )
