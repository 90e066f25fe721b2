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

    @property
    def objective(self) -> float:
        """What planners maximise: goodput of the window and after it."""
        return self.goodput + self.later_goodput

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
        """The distance of the objective to its upper bound, relative to the objective."""
        if math.isinf(self.upper_bound):
            return math.inf
        missing = max(0.0, self.upper_bound - self.objective)
        if missing <= 1e-9 * max(1.0, abs(self.upper_bound)):
            return 0.0
        # with almost no goodput the gap is relative to the bound
        return missing / max(self.objective, 1e-9 * abs(self.upper_bound), 1e-9)
