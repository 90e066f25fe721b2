"""A scenario: tenants with their arrivals and drift on a board, and how to run them."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.core.catalogue import Board
from migrator.core.curve import Curve
from migrator.core.service import Service
from migrator.core.trace import Trace

MOST_WINDOWS = 1000
HIGHEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Drift:
    """What one window does to a tenant's model, and what retraining does about it."""

    accuracy_pre: float
    """On this window's data, of a model retrained in the window before."""
    accuracy_post: float
    """On this window's data, once retrained on it."""
    seconds: Curve | None
    """How long that retraining takes, over SMs; None: there is nothing to retrain on."""
    accuracy_estimated: float | None = None
    """What was expected of it before it was paid for; None: what came."""

    @property
    def accuracy_expected(self) -> float:
        """What a policy is told of it."""
        known = self.accuracy_estimated
        return self.accuracy_post if known is None else known


@dataclass(frozen=True)
class ServedTenant:
    """A tenant of a scenario."""

    service: Service
    trace: Trace
    """Its arrivals, scaled; the run begins at `offset_s`, what is before it is history."""
    offset_s: int
    drifts: tuple[Drift, ...]
    """One per window; after the last one there is nothing more to retrain."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.service.tenant


@dataclass(frozen=True)
class Scenario:
    """Everything a run needs."""

    name: str
    board: Board
    window_s: float
    slot_s: float
    windows: int
    tenants: tuple[ServedTenant, ...]
    policy: str
    forecaster: str
    seed: int
    prepared: bool
    """Whether worker processes wait ready, so that a new instance pays no process start."""

    @property
    def slots(self) -> int:
        """Slots of a window."""
        return round(self.window_s / self.slot_s)
