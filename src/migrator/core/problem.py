"""The planning problem and its plan, and the tasks, instances and shares that both are made of.

Plain values without behaviour that would favour one planner. Slots are 0-based. A retraining that
starts at slot t on k GPCs occupies slots t to t + slots[k] - 1, where `slots` are those of its
configuration, and its new accuracy counts from slot t + slots[k] on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from migrator.core.catalogue import Board


class Kind(StrEnum):
    """The two tasks of a tenant."""

    INFERENCE = "inference"
    RETRAINING = "retraining"

    __hash__ = str.__hash__  # tasks are hashed all the time; that of an Enum is written in Python


@dataclass(frozen=True, order=True)
class Task:
    """A tenant's inference or retraining; written TENANT/inference, TENANT/retraining."""

    tenant: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.tenant}/{self.kind}"

    @staticmethod
    def parse(text: str) -> Task:
        """Parse a task; ValueError if the text is not TENANT/KIND."""
        tenant, slash, kind = text.rpartition("/")
        if not slash or not tenant:
            raise ValueError(f"{text!r} is not TENANT/inference or TENANT/retraining")
        return Task(tenant, Kind(kind))


@dataclass(frozen=True)
class Instance:
    """A MIG instance of `gpcs` GPCs whose first memory slice is `start`."""

    start: int
    gpcs: int
    task: Task | None = None
    """None: the instance exists and is unused."""

    def __str__(self) -> str:
        return f"{self.gpcs}g@{self.start}"


@dataclass(frozen=True, order=True)
class Share:
    """A worker process that may use `percent` of the board's SMs under MPS.

    A process cannot change its share, so another percentage is another process.
    """

    number: int
    """Index among the processes of a task."""
    percent: float
    task: Task
    duty: float = 1.0
    """The share of the time for which it has the SMs, if several tasks take turns on them."""

    def __str__(self) -> str:
        return f"{self.percent:g}%"


Holding = Instance | Share
"""An instance or share of a task, used by one worker process."""


def sms_of(board: Board, holding: Holding) -> float:
    """The number of SMs of a holding."""
    if isinstance(holding, Share):
        return board.sms * holding.percent / 100
    return board.sms_of(holding.gpcs)


def bare(holding: Holding) -> Holding:
    """The identity of a holding: an instance without its task; a share includes its task."""
    return holding if isinstance(holding, Share) else replace(holding, task=None)


class Charge(StrEnum):
    """The cost model of reconfigurations."""

    PAPER = "paper"
    """A change of an inference task's multiset of sizes costs overhead x its mean instance."""
    SURVIVORS = "survivors"
    """An instance that stays with its tenant continues to serve; a new one is cold for the
    overhead."""


@dataclass(frozen=True)
class RetrainingConfiguration:
    """One way to retrain a model: what it takes and what it brings."""

    accuracy: float
    """Of the model afterwards."""
    slots: Mapping[int, int]
    """GPCs -> slots that it takes; sizes left out are not used for it."""
    name: str = ""
    """No two of a tenant share one; the only one of a tenant needs none."""
    memory_gib: float = 0.0
    """Memory that its instance has at least."""


@dataclass(frozen=True)
class Tenant:
    """One model: its arrivals, its measured profile and the effect of retraining."""

    name: str
    received: tuple[tuple[float, ...], ...]
    """Equally likely scenarios of requests per slot; a single one is a point forecast."""
    capability: Mapping[int, float]
    """GPCs -> requests per slot of one instance; missing sizes are not used for inference."""
    accuracy_pre: float
    configurations: tuple[RetrainingConfiguration, ...]
    """Ways to retrain, of which a plan chooses at most one; a running retraining has one of them.
    Without any, or if none can use a size, there is nothing to retrain in this window."""
    overhead_s: float
    min_gpcs: int
    """Its inference task always has an instance of at least this many GPCs."""
    retraining_optional: bool = False
    """Whether the plan may leave the retraining out; the paper's rule requires it."""
    requests_after: float = 0.0
    """Expected requests after the window that are answered with the accuracy gained by a completed
    retraining."""
    weight: float = 1.0
    """What its goodput counts in the objective, beside that of the others."""
    floor: float = 0.0
    """The share of the expected requests of every slot that a plan is able to answer, if any plan
    is; from 0 to 1."""

    @property
    def requests(self) -> float:
        """Requests of the window, as the mean of the scenarios."""
        return sum(map(sum, self.received)) / len(self.received)

    def configuration(self, name: str) -> RetrainingConfiguration:
        return next(choice for choice in self.configurations if choice.name == name)

    def later_goodput(self, configuration: RetrainingConfiguration) -> float:
        """Expected goodput after the window that a completed retraining adds."""
        return self.requests_after * (configuration.accuracy - self.accuracy_pre)


@dataclass(frozen=True)
class RunningRetraining:
    """A running retraining, which must continue unchanged on its instance."""

    tenant: str
    slots_left: int
    configuration: str = ""
    """The name of its configuration."""


@dataclass(frozen=True)
class Initial:
    """The layout before slot 0."""

    instances: tuple[Instance, ...] = ()
    retrainings: tuple[RunningRetraining, ...] = ()


@dataclass(frozen=True)
class Problem:
    """One window to plan. `initial` None: the state before is unknown, so slot 0 costs nothing."""

    board: Board
    slot_s: float
    slots: int
    charge: Charge
    tenants: tuple[Tenant, ...]
    initial: Initial | None = None

    @property
    def has_preferences(self) -> bool:
        """Whether a tenant has a weight other than 1, or a floor."""
        return any(tenant.weight != 1 or tenant.floor > 0 for tenant in self.tenants)

    @cached_property
    def penalty(self) -> float:
        """Goodput that a request short of a floor costs in the objective: all that can be earned.

        So of two plans that differ by a request short or more, the one that is short of fewer has
        the larger objective, whatever else they do. 0 if no tenant has a floor.
        """
        if not any(tenant.floor > 0 for tenant in self.tenants):
            return 0.0
        return sum(
            tenant.weight * (tenant.requests + tenant.requests_after) for tenant in self.tenants
        )

    def tenant(self, name: str) -> Tenant:
        return next(tenant for tenant in self.tenants if tenant.name == name)

    def running(self, tenant: Tenant) -> RunningRetraining | None:
        """The tenant's retraining that runs at slot 0; None if none does."""
        for running in self.initial.retrainings if self.initial else ():
            if running.tenant == tenant.name:
                return running
        return None

    def slots_left(self, tenant: Tenant) -> int | None:
        running = self.running(tenant)
        return None if running is None else running.slots_left

    def may_retrain(self, tenant: Tenant) -> bool:
        """Whether the plan may start a retraining for this tenant."""
        lengths = [slots for choice in tenant.configurations for slots in choice.slots.values()]
        if not lengths or self.running(tenant) is not None:
            return False
        return not tenant.retraining_optional or min(lengths) <= self.slots

    def must_retrain(self, tenant: Tenant) -> bool:
        """Whether the plan must start a retraining for this tenant."""
        return self.may_retrain(tenant) and not tenant.retraining_optional

    def with_charge(self, charge: Charge) -> Problem:
        return replace(self, charge=charge)


@dataclass(frozen=True)
class Retraining:
    """A tenant's retraining: slots `start` to `end` - 1 on one instance of `gpcs` GPCs.

    A retraining that was already running before the window has start 0.
    """

    tenant: str
    start: int
    end: int
    gpcs: int
    configuration: str = ""
    """The name of its configuration."""


@dataclass(frozen=True)
class Allocation:
    """The layout of one slot."""

    instances: tuple[Instance, ...]


PROVEN, TIME_LIMIT = "proven optimal", "time limit"
"""Statuses of a plan; others are `within x%`."""


@dataclass(frozen=True)
class Claims:
    """What a plan file says about its own quality; None: nothing."""

    gap: float | None = None
    status: str | None = None


@dataclass(frozen=True)
class Plan:
    """The allocations of a window, their goodput, and an upper bound on the objective."""

    goodput: float
    upper_bound: float
    solver: str
    solve_s: float
    retrainings: tuple[Retraining, ...]
    slots: tuple[Allocation, ...]
    later_goodput: float = 0.0
    """Expected goodput after the window that the completed retrainings add."""
    weighting: float = 0.0
    """What weights other than 1 add to these two in the objective; below 0 if they take away."""
    penalty: float = 0.0
    """What the requests that are short of a floor take from the objective."""

    @property
    def objective(self) -> float:
        """What planners maximise: goodput of the window and after it, each tenant's times its
        weight, less the penalty."""
        return self.goodput + self.later_goodput + self.weighting - self.penalty

    @property
    def status(self) -> str:
        """What is known about the distance to the best plan."""
        if self.gap == 0:
            return PROVEN
        if math.isinf(self.gap):
            return TIME_LIMIT
        return f"within {self.gap:.2%}" if self.gap >= 0.0001 else "within 0.01%"

    @property
    def gap(self) -> float:
        """The distance of the objective to its upper bound, relative to the objective before its
        penalty."""
        if math.isinf(self.upper_bound):
            return math.inf
        missing = max(0.0, self.upper_bound - self.objective)
        if missing <= 1e-9 * max(1.0, abs(self.upper_bound)):
            return 0.0
        # with almost no goodput the gap is relative to the bound
        earned = self.objective + self.penalty
        return missing / max(earned, 1e-9 * abs(self.upper_bound), 1e-9)
