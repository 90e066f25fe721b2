"""Durations of a simulated run, from profiles or from the measurements of a live run."""

# ruff: noqa: ARG002 (several implementations of one protocol)

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from migrator.control.observation import Policy, Sharing, Sight, sharing_on
from migrator.core.problem import Holding, bare
from migrator.core.profiles import Curve, Overhead
from migrator.core.scenario import Scenario


@dataclass(frozen=True)
class Removal:
    """One attempt to destroy an instance."""

    seconds: float
    why: str = ""
    """Why it failed; empty if the instance was destroyed."""


@dataclass(frozen=True)
class Training:
    """One retraining from its start to its end."""

    seconds: float
    sms: float


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
        """A lognormal factor with mean 1."""
        if not self.spread:
            return 1.0
        drawn = np.random.default_rng([self.seed, window, *tenant.encode()])
        sigma = math.sqrt(math.log1p(self.spread**2))
        return float(drawn.lognormal(-(sigma**2) / 2, sigma))

    def swap_s(self, window: int, tenant: str) -> float:
        """Zero: swapping weights takes milliseconds."""
        return 0.0


Key = tuple[object, ...]


@dataclass
class Samples:
    """Measured seconds by key, from the most specific key to the least specific.

    `take` returns the next unused sample of the first key that has one, in the order of
    measurement. When all are used, it draws a sample of the last key.
    """

    seed: int
    values: dict[Key, list[float]] = field(default_factory=dict)
    _next: dict[Key, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def add(self, seconds: float, *keys: Key) -> None:
        """Add a measured duration under each of the keys."""
        for key in keys:
            self.values.setdefault(key, []).append(seconds)

    def take(self, *keys: Key) -> float | None:
        """The next sample, or one drawn from the last key with samples; None if there is none."""
        for key in keys[:-1]:
            at = self._next.get(key, 0)
            known = self.values.get(key, ())
            if at < len(known):
                self._next[key] = at + 1
                return known[at]
        known = self.values.get(keys[-1], ())
        return float(self._random.choice(known)) if known else None


@dataclass
class MeasuredDurations:
    """Durations from the records of a live run. Steps that were never measured use the profile.

    `steps` keys are (step, window, holding), (step, window, tenant) and (step, tenant).
    """

    profile: ProfileDurations
    steps: Samples
    removals: dict[tuple[int, Holding], list[Removal]]
    """All attempts in order, by window and instance."""
    trainings: Mapping[tuple[str, int], Sequence[Training]]
    """By tenant and window, on one or more sizes."""
    swaps: Mapping[tuple[str, int], float]

    def plan_s(self, window: int) -> float:
        """The next one of that window, or one of any window."""
        return self.steps.take(("plan", window), ("plan",)) or 0.0

    def create_s(self, window: int, tenant: str, holding: Holding) -> float:
        """As measured; shares need no creation."""
        return self._step("create", window, tenant, holding, 0.0)

    def destroy(self, window: int, holding: Holding) -> Removal:
        """The removal of that instance in that window, including failed attempts."""
        attempts = self.removals.get((window, bare(holding)))
        if attempts:
            return attempts.pop(0)
        return Removal(self.steps.take(("destroy",)) or 0.0)

    def warm_s(self, window: int, tenant: str, holding: Holding) -> float:
        """Until the worker served."""
        known = self.profile.warm_s(window, tenant, holding)
        return self._step("warm", window, tenant, holding, known)

    def take_over_s(self, window: int, tenant: str, holding: Holding) -> float:
        """Until the router knew it."""
        return self._step("take_over", window, tenant, holding, 0.0)

    def stop_s(self, window: int, holding: Holding) -> float:
        """Until the process had exited."""
        return self.steps.take(("stop", window, bare(holding)), ("stop",)) or 0.0

    def training_start_s(self, window: int, tenant: str) -> float:
        """Zero: included in the retraining."""
        return 0.0

    def training_s(self, window: int, tenant: str, curve: Curve, sms: float) -> float | None:
        """The measured duration on the nearest size, scaled to other SMs by the curve."""
        measured = self.trainings.get((tenant, window))
        if not measured:
            return None
        nearest = min(measured, key=lambda training: abs(math.log(training.sms / sms)))
        return nearest.seconds * curve.at(sms) / curve.at(nearest.sms)

    def slower(self, window: int, tenant: str) -> float:
        """1: retrainings that were not measured take as long as the profile says."""
        return 1.0

    def swap_s(self, window: int, tenant: str) -> float:
        """The duration in that window, or else the tenant's median."""
        known = self.swaps.get((tenant, window))
        if known is None:
            own: Sequence[float] = [s for (name, _), s in self.swaps.items() if name == tenant]
            known = float(np.median(own)) if own else 0.0
        return known

    def _step(
        self, step: str, window: int, tenant: str, holding: Holding, otherwise_s: float
    ) -> float:
        found = self.steps.take(
            (step, window, bare(holding)), (step, window, tenant), (step, tenant)
        )
        return otherwise_s if found is None else found


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


def profile_durations(scenario: Scenario, policy: Policy, spread: float) -> ProfileDurations:
    """Durations from the profiles of the tenants. `spread`: of those of retrainings."""
    return ProfileDurations(
        {tenant.name: tenant.service.profile.overhead for tenant in scenario.tenants},
        sharing_on(policy, scenario.board) is Sharing.MIG,
        _has_prepared_workers(scenario, policy),
        DECISION_S if policy.sight is Sight.NOTHING else PLAN_S,
        spread,
        scenario.seed,
    )
