"""The interface of a policy: maps an observation to a decision, without clock and I/O.

A policy is asked at the start of every window, and again as its attributes say. It returns the
layout of the following slots. The executor carries it out, in the simulator and on a real GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board
from migrator.core.problem import Holding, Instance, Plan, Problem
from migrator.core.profiles import Curve, Service
from migrator.core.scenario import DEFAULT_LIMITS, PeerLimits


class Sharing(StrEnum):
    """How tasks share the GPU."""

    MIG = "MIG"
    """Instances with their own slices: no interference."""
    MPS = "MPS"
    """Percentages of the SMs: memory bandwidth is shared."""
    UNPARTITIONED = "unpartitioned"
    """All tasks share the whole GPU in turns."""


class Sight(StrEnum):
    """What a policy sees of future arrivals."""

    NOTHING = "nothing"
    START = "forecast at the window's start"
    FORECAST = "forecast"
    TRUTH = "truth"


class Routing(StrEnum):
    """The routing of requests to instances."""

    EARLIEST = "earliest"
    """The instance that answers soonest."""
    SLOWEST_FIRST = "slowest-first"
    """The slowest instance that still answers in time; among equals the soonest (ELSA)."""


@dataclass(frozen=True)
class RetrainingChoice:
    """A configuration that a retraining may have."""

    configuration: str
    """Its name; empty for a tenant's only one."""
    accuracy_post: float
    """Expected accuracy after the retraining."""
    seconds: Curve
    """Seconds of the whole retraining, over SMs."""
    memory_gib: float = 0.0
    """Memory that its instance has at least."""


@dataclass(frozen=True)
class RetrainingState:
    """A waiting or running retraining."""

    accuracy_now: float
    """Accuracy of the serving model on this window's data."""
    accuracy_post: float
    """Expected accuracy after the retraining."""
    seconds: Curve
    """Seconds of the whole retraining, over SMs."""
    done: float
    """Completed share of the work; 0 while it waits."""
    holding: Holding | None
    """The instance or share it runs on; None while it waits."""
    longer: float = 1.0
    """The duration that four of five retrainings do not exceed, relative to `seconds`."""
    configuration: str = ""
    """The name of the configuration that `accuracy_post` and `seconds` are of: that of a running
    retraining, else the tenant's first."""
    others: tuple[RetrainingChoice, ...] = ()
    """The tenant's other configurations, for policies that choose; empty while one runs."""
    memory_gib: float = 0.0
    """Memory that its instance has at least in the first one."""
    requested: bool = False
    """Whether it was asked for, by an operator or by the scenario's limits: a plan begins with it,
    whether it pays or not, if there is room."""

    @property
    def choices(self) -> tuple[RetrainingChoice, ...]:
        """All configurations, the first one first."""
        first = RetrainingChoice(
            self.configuration, self.accuracy_post, self.seconds, self.memory_gib
        )
        return (first, *self.others)


@dataclass(frozen=True)
class TenantView:
    """One tenant as a policy sees it."""

    service: Service
    history: NDArray[np.float64]
    """Requests per slot observed so far, up to the current slot; may be empty."""
    ahead: NDArray[np.float64] | None
    """Scenarios (rows) of requests in the remaining slots of the window, by the policy's sight."""
    retraining: RetrainingState | None
    """None: nothing to retrain, or already done."""
    overhead_s: float
    """Seconds until a new instance or share serves."""
    accuracy: float
    """Accuracy of the serving model on this window's data."""
    value_after: float = 0.0
    """Windows after this one for which the gain of a retraining lasts, in expectation."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.service.tenant


@dataclass(frozen=True)
class Observation:
    """The input of a decision."""

    board: Board
    slot_s: float
    slots: int
    """Slots per window."""
    slot: int
    """The current slot of the window, from 0."""
    tenants: tuple[TenantView, ...]
    held: tuple[Holding, ...]
    """What every task holds; empty before the first decision."""
    decided: Decision | None = None
    """The last decision in this window; None at its start."""
    cold_s: tuple[float, ...] = ()
    """Per holding, seconds until it serves; empty if all serve."""
    limits: PeerLimits = DEFAULT_LIMITS
    """Which MPS processes there may be."""

    @property
    def slots_left(self) -> int:
        """Slots from the current one to the window's end."""
        return self.slots - self.slot

    def tenant(self, name: str) -> TenantView:
        """The tenant called `name`."""
        return next(tenant for tenant in self.tenants if tenant.name == name)


@dataclass(frozen=True)
class Decision:
    """The layout slot by slot, from the current slot on. The last slot holds until the next
    decision.

    A retraining runs while its task holds something. The holding of a finished retraining idles.
    """

    slots: tuple[tuple[Holding, ...], ...]
    problem: Problem | None = None
    plan: Plan | None = None
    """The plan of a policy that plans, with its problem, for the records."""
    begin: int = 0
    """The slot of the window at which the plan begins."""
    keeps_plan: bool = False
    """The plan is kept at the policy's interval unless arrivals leave its forecast."""
    rehearsed_goodput: float | None = None
    """The plan's goodput with the gaps that no order of steps avoids; set by the controller."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """Tenant -> the configuration that a policy without a plan chose for its retraining."""

    @property
    def configurations(self) -> dict[str, str]:
        """Tenant -> the configuration that its retraining has; others have their first."""
        retrainings = self.plan.retrainings if self.plan is not None else ()
        planned = {retraining.tenant: retraining.configuration for retraining in retrainings}
        return {**planned, **self.chosen}

    @property
    def predicted_goodput(self) -> float | None:
        """The goodput to expect from the plan; None without a plan."""
        if self.rehearsed_goodput is not None or self.plan is None:
            return self.rehearsed_goodput
        return self.plan.goodput


class Policy(Protocol):
    """A way to share a GPU. Classes that inherit from it have the defaults below."""

    name: str
    summary: str
    """One line for `migrator policies`."""
    sharing: Sharing = Sharing.MIG
    sight: Sight = Sight.NOTHING
    routing: Routing = Routing.EARLIEST
    every_s: float | None = None
    """Seconds between decisions within a window; None: only at its start."""
    on_completion: bool = True
    """Whether to decide again at the first slot after a retraining ends."""
    estimates: bool = False
    """Whether it plans with the estimated accuracy after a retraining. Estimating takes time on
    the instances that serve, so it is done only for policies that do. One with an attribute
    `estimates_always` is estimated in every window, also where earlier retrainings predict the next
    one."""

    def decide(self, observation: Observation) -> Decision:
        """Decide the layout from the current slot on."""


def sharing_on(policy: Policy, board: Board) -> Sharing:
    """How the policy's tasks share a board: instances of a board of shares are MPS shares."""
    return Sharing.MPS if policy.sharing is Sharing.MIG and board.is_of_shares else policy.sharing


def lends(policy: Policy, board: Board) -> bool:
    """Whether standbys answer requests of their tenants while the worker on their slices is idle.

    Policies say so by an attribute of this name. There are standbys on boards of shares only.
    """
    return board.is_of_shares and bool(getattr(policy, "lends", False))


def last_window(observation: Observation, view: TenantView) -> NDArray[np.float64]:
    """Requests per slot over the last window's length; shorter while less is known."""
    return view.history[-observation.slots :]


def mean_rate_rps(observation: Observation, view: TenantView) -> float | None:
    """Mean requests per second over that time; None if nothing has been observed."""
    recent = last_window(observation, view)
    return float(recent.mean()) / observation.slot_s if len(recent) else None


def running(observation: Observation) -> dict[str, Instance]:
    """Tenant -> the instance of its running retraining, which it must keep."""
    return {
        view.name: view.retraining.holding
        for view in observation.tenants
        if view.retraining is not None and isinstance(view.retraining.holding, Instance)
    }


def waiting(observation: Observation) -> tuple[TenantView, ...]:
    """The tenants with a retraining that does not run yet."""
    busy = running(observation)
    return tuple(
        view
        for view in observation.tenants
        if view.retraining is not None and view.name not in busy
    )


def remaining_s(view: TenantView, sms: float, *, late: bool = False) -> float:
    """Seconds that the tenant's retraining still takes on `sms` SMs, including its start.

    `late`: the seconds that four of five retrainings do not exceed, instead of the mean.
    """
    state = view.retraining
    assert state is not None, f"{view.name} has nothing to retrain"
    start_s = 0.0 if state.done > 0 and state.holding is not None else view.overhead_s
    longer = state.longer if late else 1.0
    return start_s + (1 - state.done) * state.seconds.at(sms) * longer
