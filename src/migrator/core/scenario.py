"""A scenario: tenants with their arrivals and drift on a board, and how to run them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board
from migrator.core.peer_limits import DEFAULT_LIMITS, PeerLimits
from migrator.core.profiles import Curve
from migrator.core.service import Service

MOST_WINDOWS = 1000
HIGHEST_SEED = 2**32 - 1


class LabelsAt(StrEnum):
    """When the labels of a window's data arrive."""

    START = "start"
    """When the window begins: its retraining learns the window's own data, as in the paper."""
    FEEDBACK = "feedback"
    """During the window, after answers: the next window's retraining learns them."""

    @property
    def words(self) -> str:
        """One line for reports."""
        if self is LabelsAt.START:
            return "labels: those of a window are there when it begins, and it learns them"
        return "labels: those of a window come during it, and the next window learns them"


@dataclass(frozen=True)
class Drift:
    """The effect of one window on a tenant's model, and of retraining it."""

    accuracy_pre: float
    """Accuracy on this window's data of a model retrained in the previous window."""
    accuracy_post: float
    """Accuracy on this window's data after retraining on it."""
    seconds: Curve | None
    """Duration of the retraining over SMs; None: nothing to retrain on."""
    accuracy_estimated: float | None = None
    """Estimate of `accuracy_post` before the retraining; None: `accuracy_post`."""

    @property
    def accuracy_expected(self) -> float:
        """The accuracy that policies plan with."""
        known = self.accuracy_estimated
        return self.accuracy_post if known is None else known


@dataclass(frozen=True)
class ServedTenant:
    """A tenant of a scenario."""

    service: Service
    trace: Trace
    """Its scaled arrivals; the run begins at `offset_s`, the part before it is history."""
    offset_s: int
    drifts: tuple[Drift, ...]
    """One per window; later windows need no retraining."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.service.tenant


@dataclass(frozen=True)
class Scenario:
    """A scenario to run."""

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
    """Whether worker processes are started in advance for new instances."""
    labels: LabelsAt = LabelsAt.START
    """When labels arrive; the tenants' drifts are those of that protocol."""
    peers: PeerLimits = DEFAULT_LIMITS
    """What the GPU allows policies that share it with MPS."""

    @property
    def slots(self) -> int:
        """Slots of a window."""
        return round(self.window_s / self.slot_s)


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests per second of wall time, second 0 first."""

    name: str
    counts: NDArray[np.int64]

    @property
    def seconds(self) -> int:
        """Length in seconds."""
        return len(self.counts)

    @property
    def mean_rps(self) -> float:
        """Mean requests per second."""
        return float(self.counts.mean()) if self.seconds else 0.0

    def scaled(self, factor: float) -> Trace:
        """Every rate times `factor`; rounding errors are carried over to later seconds."""
        total = np.floor(np.cumsum(self.counts * factor) + 0.5).astype(np.int64)
        return Trace(self.name, np.diff(total, prepend=0))

    def from_second(self, second: int) -> Trace:
        """The trace from `second` on."""
        return Trace(self.name, self.counts[second:])
