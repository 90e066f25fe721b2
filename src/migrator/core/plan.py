"""A plan: the instances and their tasks in every slot of the window."""

from __future__ import annotations

import math
from dataclasses import dataclass

from migrator.core.instance import Instance


@dataclass(frozen=True)
class Retraining:
    """A tenant's retraining: slots `start` to `end` - 1 on one instance of `gpcs` GPCs.

    A retraining that was already running before the window has start 0.
    """

    tenant: str
    start: int
    end: int
    gpcs: int


@dataclass(frozen=True)
class Allocation:
    """The layout of one slot."""

    instances: tuple[Instance, ...]


@dataclass(frozen=True)
class Plan:
    """The allocations of a window with their goodput and an upper bound."""

    goodput: float
    upper_bound: float
    solver: str
    solve_s: float
    retrainings: tuple[Retraining, ...]
    slots: tuple[Allocation, ...]

    @property
    def gap(self) -> float:
        """The distance to the upper bound, relative to the plan's goodput."""
        if math.isinf(self.upper_bound):
            return math.inf
        missing = max(0.0, self.upper_bound - self.goodput)
        if missing <= 1e-9 * max(1.0, abs(self.upper_bound)):
            return 0.0
        # with almost no goodput the gap is relative to the bound
        return missing / max(self.goodput, 1e-9 * abs(self.upper_bound), 1e-9)
