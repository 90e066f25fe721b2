"""A plan: for every slot of the window, which instance holds which task."""

from __future__ import annotations

import math
from dataclasses import dataclass

from migrator.core.instance import Instance


@dataclass(frozen=True)
class Retraining:
    """A tenant's retraining: slots `start` to `end` - 1 on one instance of `gpcs` GPCs.

    One that ran already before the window has start 0.
    """

    tenant: str
    start: int
    end: int
    gpcs: int


@dataclass(frozen=True)
class Allocation:
    """What holds in one slot."""

    instances: tuple[Instance, ...]


@dataclass(frozen=True)
class Plan:
    """A window's allocations with what they are worth and how that is certified."""

    goodput: float
    upper_bound: float
    solver: str
    solve_s: float
    retrainings: tuple[Retraining, ...]
    slots: tuple[Allocation, ...]

    @property
    def gap(self) -> float:
        """How far above the plan an optimum could be, relative to the plan's goodput."""
        if math.isinf(self.upper_bound):
            return math.inf
        missing = max(0.0, self.upper_bound - self.goodput)
        if missing <= 1e-9 * max(1.0, abs(self.upper_bound)):
            return 0.0
        # next to nothing promised against something possible: the bound is the measure
        return missing / max(self.goodput, 1e-9 * abs(self.upper_bound), 1e-9)
