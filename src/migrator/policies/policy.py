"""A policy: what is seen now in, what every task gets out. No clock, no I/O.

A policy is asked at the start of every window, and again as its attributes say. It answers
with what is held in the slots from now on; the executor makes it so, in the simulator and on
a real GPU alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board
from migrator.core.curve import Curve
from migrator.core.instance import Instance
from migrator.core.plan import Plan
from migrator.core.problem import Problem
from migrator.core.service import Service
from migrator.core.share import Holding


class Sharing(StrEnum):
    """How tasks share the GPU."""

    MIG = "MIG"
    """Instances on slices of their own: no interference."""
    MPS = "MPS"
    """Percentages of the SMs: memory bandwidth is shared."""
    UNPARTITIONED = "unpartitioned"
    """All tasks share the whole GPU in turns."""


class Sight(StrEnum):
    """What a policy sees of the arrivals to come."""

    NOTHING = "nothing"
    START = "forecast at the window's start"
    FORECAST = "forecast"
    TRUTH = "truth"


class Routing(StrEnum):
    """Which instance a request is sent to."""

    EARLIEST = "earliest"
    """Where it is answered soonest."""
    THRIFTY = "thrifty"
    """The slowest that still answers in time, among equals the soonest (ELSA)."""


@dataclass(frozen=True)
class RetrainingState:
    """A retraining that waits or runs."""

    accuracy_now: float
    """Of the model that serves, on this window's data."""
    accuracy_post: float
    """What is expected once it is done."""
    seconds: Curve
    """All of its work, over SMs."""
    done: float
    """Part of the work that is done, 0 where it waits."""
    holding: Holding | None
    """What it runs on; None: it waits."""


@dataclass(frozen=True)
class TenantView:
    """One tenant as a policy sees it."""

    service: Service
    history: NDArray[np.float64]
    """Requests per slot of everything seen so far; it ends now and may be empty."""
    ahead: NDArray[np.float64] | None
    """Scenarios (rows) of requests in the slots left of this window, by the policy's sight."""
    retraining: RetrainingState | None
    """None: nothing to retrain, or done already."""
    overhead_s: float
    """Until an instance or share that is new to it serves."""
    accuracy: float
    """Of the model that serves now, on this window's data."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.service.tenant


@dataclass(frozen=True)
class Observation:
    """What a policy decides on."""

    board: Board
    slot_s: float
    slots: int
    """Of a window."""
    slot: int
    """Now, in this window: 0 at its start."""
    tenants: tuple[TenantView, ...]
    held: tuple[Holding, ...]
    """What every task holds now; empty before the first decision."""
    decided: Decision | None = None
    """What the policy decided last in this window; None at its start."""
    cold_s: tuple[float, ...] = ()
    """Per holding, how long until it serves; empty: all of them do."""

    @property
    def slots_left(self) -> int:
        """From now to the window's end."""
        return self.slots - self.slot

    def tenant(self, name: str) -> TenantView:
        """The tenant called `name`."""
        return next(each for each in self.tenants if each.name == name)


@dataclass(frozen=True)
class Decision:
    """What is held from now on, slot by slot; the last slot holds until the next decision.

    A retraining runs while its task holds something. What is held for one that is done idles.
    """

    slots: tuple[tuple[Holding, ...], ...]
    problem: Problem | None = None
    plan: Plan | None = None
    """Where the policy planned: its problem and plan, for the record."""
    begin: int = 0
    """The slot of the window that its plan begins at."""


class Policy(Protocol):
    """One way to share a GPU."""

    name: str
    summary: str
    """One line for `migrator policies`."""
    sharing: Sharing
    sight: Sight
    routing: Routing
    every_s: float | None
    """Asked again so often inside the window; None: at its start only."""
    on_completion: bool
    """Asked again at the first slot after a retraining ends."""

    def decide(self, observation: Observation) -> Decision:
        """What every task gets from now on."""
        ...


def last_window(observation: Observation, view: TenantView) -> NDArray[np.float64]:
    """Requests per slot over the length of a window, up to now; shorter while less is known."""
    return view.history[-observation.slots :]


def mean_rate_rps(observation: Observation, view: TenantView) -> float | None:
    """Requests per second over that time; None where nothing has been seen yet."""
    recent = last_window(observation, view)
    return float(recent.mean()) / observation.slot_s if len(recent) else None


def running(observation: Observation) -> dict[str, Instance]:
    """Tenant -> the instance that its retraining runs on and has to keep."""
    return {
        view.name: view.retraining.holding
        for view in observation.tenants
        if view.retraining is not None and isinstance(view.retraining.holding, Instance)
    }


def waiting(observation: Observation) -> tuple[TenantView, ...]:
    """The tenants that have something to retrain which does not run yet."""
    busy = running(observation)
    return tuple(
        view
        for view in observation.tenants
        if view.retraining is not None and view.name not in busy
    )


def remaining_s(view: TenantView, sms: float) -> float:
    """Seconds the tenant's retraining still takes on `sms` SMs, its start included."""
    state = view.retraining
    assert state is not None, f"{view.name} has nothing to retrain"
    start_s = 0.0 if state.done > 0 and state.holding is not None else view.overhead_s
    return start_s + (1 - state.done) * state.seconds.at(sms)
