"""A scenario: tenants with their arrivals and drift on a board, and how to run them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board, has_clusters
from migrator.core.profiles import Curve, Service

CHECKPOINTS = 12
"""Checkpoints of a retraining: one after each of the packaged data sets' 12 epochs."""


class ShareSizes(StrEnum):
    """The MPS shares that a process may have."""

    RUNTIME = "runtime"
    """Those of the live runtime. On GPUs with clusters of SMs, where libraries compute wrongly on
    other shares: powers of two of the smallest share, and the whole GPU. On older ones: any."""
    ANY = "any"
    """Any share that is not below the smallest."""


class ResizedTraining(StrEnum):
    """What happens to a running retraining whose policy asks for another MPS share."""

    RESTARTS = "restarts"
    """A new process continues from the last checkpoint."""
    FREE = "free"
    """It continues at once, and nothing is lost."""
    STAYS = "stays"
    """It keeps its share to its end."""


class Overlap(StrEnum):
    """The SMs of MPS processes that together hold more than the GPU has."""

    LIMITED = "limited"
    """All SMs at most: busy processes are slower by what they hold too much."""
    UNLIMITED = "unlimited"
    """Each has its share beside the others."""


@dataclass(frozen=True)
class PeerLimits:
    """The limits of a run."""

    min_sms: float | None = None
    """SMs that an MPS process has at least; None: those of the board's smallest instance."""
    shares: ShareSizes = ShareSizes.RUNTIME
    resized_training: ResizedTraining = ResizedTraining.RESTARTS
    overlap: Overlap = Overlap.LIMITED
    prepared: bool = True
    """Whether worker processes are started in advance also for policies that do not look ahead. If
    the scenario's workers are cold, they are cold for every policy."""

    def allows_any_share(self, board: Board) -> bool:
        """Whether a process may have any share that is not below the smallest."""
        return self.shares is ShareSizes.ANY or not has_clusters(board.name)

    def least_sms(self, board: Board) -> float:
        """SMs that an MPS process has at least on this board."""
        return board.sms_of(board.sizes[0]) if self.min_sms is None else self.min_sms

    def least_percent(self, board: Board) -> float:
        """The same as a percentage of the board's SMs."""
        return 100 * self.least_sms(board) / board.sms


DEFAULT_LIMITS = PeerLimits()
"""What a GPU supports."""


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
class OtherConfiguration:
    """The effect of retraining in a window in another configuration than the first."""

    name: str
    accuracy_post: float
    """Accuracy on this window's data after it."""
    seconds: Curve
    """Its duration over SMs."""
    accuracy_estimated: float | None = None
    """Estimate of `accuracy_post` before it; None: `accuracy_post`."""
    memory_gib: float = 0.0
    """Memory that its instance has at least."""

    def accuracy(self, *, known: bool) -> float:
        """The accuracy after it: the true one if it is `known`, else the expected one."""
        return self.accuracy_post if known else self.accuracy_expected

    @property
    def accuracy_expected(self) -> float:
        """The accuracy that policies plan with."""
        estimated = self.accuracy_estimated
        return self.accuracy_post if estimated is None else estimated


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
    configuration: str = ""
    """The name of the configuration that this is about; empty if there is only one."""
    others: tuple[OtherConfiguration, ...] = ()
    """The other configurations, of which policies that choose may take one instead."""

    @property
    def accuracy_expected(self) -> float:
        """The accuracy that policies plan with."""
        estimated = self.accuracy_estimated
        return self.accuracy_post if estimated is None else estimated

    def accuracy_after(self, configuration: str) -> float:
        """Accuracy on this window's data after retraining on it in a configuration."""
        others = (other.accuracy_post for other in self.others if other.name == configuration)
        return next(others, self.accuracy_post)

    def expected_below_first(self, configuration: str) -> float:
        """How much less accuracy is expected of a configuration than of the first."""
        others = (other.accuracy_expected for other in self.others if other.name == configuration)
        return self.accuracy_expected - next(others, self.accuracy_expected)


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
        return round(self.window_s / self.slot_s)


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests per second of wall time, second 0 first."""

    name: str
    counts: NDArray[np.int64]

    @property
    def seconds(self) -> int:
        return len(self.counts)

    @property
    def mean_rps(self) -> float:
        return float(self.counts.mean()) if self.seconds else 0.0

    def scaled(self, factor: float) -> Trace:
        """Every rate times `factor`; rounding errors are carried over to later seconds."""
        total = np.floor(np.cumsum(self.counts * factor) + 0.5).astype(np.int64)
        return Trace(self.name, np.diff(total, prepend=0))

    def superposed(self, factor: float, spread_s: int, seed: int = 0) -> Trace:
        """`factor` times as many requests from copies of the trace that are up to `spread_s` late.

        The chance of single requests does not become a burst of `factor` requests, as it does if
        counts are multiplied; what changes faster than `spread_s` is smoothed. Of the copies that
        are more than `factor` a random part of the requests is left out. Before its begin a copy
        is the mirrored trace, so that no second knows a later one than itself, but the first
        `spread_s`.
        """
        copies = max(1, math.ceil(factor))
        seconds, total = np.arange(self.seconds), np.zeros(self.seconds, np.int64)
        # copy k is k * spread // copies late
        spread = min(spread_s + 1, self.seconds)
        numbers = np.diff(-(-np.arange(spread + 1) * copies // spread))
        for delay_s in np.flatnonzero(numbers):
            total += numbers[delay_s] * self.counts[np.abs(seconds - delay_s)]
        if copies > factor:
            total = np.random.default_rng(seed).binomial(total, factor / copies)
        return Trace(self.name, total)
