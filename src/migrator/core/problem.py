"""The planning problem: expected requests, the tenants' capabilities, and the cost of retraining.

Plain values without behaviour that would favour one planner. Slots are 0-based. A retraining that
starts at slot t on k GPCs occupies slots t to t + retraining_slots[k] - 1, and its new accuracy
counts from slot t + retraining_slots[k] on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from migrator.core.catalogue import Board
from migrator.core.instance import Instance


class Charge(StrEnum):
    """The cost model of reconfigurations."""

    PAPER = "paper"
    """A change of an inference task's multiset of sizes costs overhead x its mean instance."""
    SURVIVORS = "survivors"
    """An instance that stays with its tenant continues to serve; a new one is cold for the
    overhead."""


@dataclass(frozen=True)
class Tenant:
    """One model: its arrivals, its measured profile and the effect of retraining."""

    name: str
    received: tuple[tuple[float, ...], ...]
    """Equally likely scenarios of requests per slot; a single one is a point forecast."""
    capability: Mapping[int, float]
    """GPCs -> requests per slot of one instance; missing sizes are not used for inference."""
    accuracy_pre: float
    accuracy_post: float
    retraining_slots: Mapping[int, int] | None
    """GPCs -> slots of a retraining; None: nothing to retrain in this window."""
    overhead_s: float
    min_gpcs: int
    """Its inference task always has an instance of at least this many GPCs."""
    retraining_optional: bool = False
    """Whether the plan may leave the retraining out; the paper's rule requires it."""
    value_after: float = 0.0
    """Goodput that a completed retraining adds after the window, per request of the window and
    per unit of accuracy gained: 1 if the gain lasts for one more window with the same arrivals."""

    @property
    def later_goodput(self) -> float:
        """Expected goodput after the window that a completed retraining adds."""
        requests = sum(map(sum, self.received)) / len(self.received)
        return self.value_after * requests * (self.accuracy_post - self.accuracy_pre)


@dataclass(frozen=True)
class RunningRetraining:
    """A running retraining, which must continue unchanged on its instance."""

    tenant: str
    slots_left: int


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

    def tenant(self, name: str) -> Tenant:
        """The tenant called `name`."""
        return next(each for each in self.tenants if each.name == name)

    def slots_left(self, tenant: Tenant) -> int | None:
        """Slots until the tenant's running retraining ends; None if none runs at slot 0."""
        for running in self.initial.retrainings if self.initial else ():
            if running.tenant == tenant.name:
                return running.slots_left
        return None

    def may_retrain(self, tenant: Tenant) -> bool:
        """Whether the plan may start a retraining for this tenant."""
        if tenant.retraining_slots is None or self.slots_left(tenant) is not None:
            return False
        return not tenant.retraining_optional or min(tenant.retraining_slots.values()) <= self.slots

    def must_retrain(self, tenant: Tenant) -> bool:
        """Whether the plan must start a retraining for this tenant."""
        return self.may_retrain(tenant) and not tenant.retraining_optional

    def with_charge(self, charge: Charge) -> Problem:
        """The same problem under another reconfiguration charge."""
        return replace(self, charge=charge)
