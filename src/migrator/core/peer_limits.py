"""What a GPU allows the policies that MIGRator is compared with.

Defaults are what was measured or what the live runtime does (docs/peers.md). Other values answer
what a limit costs: `migrator reproduce ladder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from migrator.core.catalogue import Board, has_clusters

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
