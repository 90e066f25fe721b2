"""The outcome of a live run as clients observed it; every request is counted once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Latencies:
    """Latencies of answered requests, from their due time to the answer."""

    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True)
class ClientTally:
    """Requests by outcome, as their sender observed it."""

    sent: int
    goodput: int
    """Answered in time and correctly."""
    wrong: int
    """Answered in time, but not correctly."""
    late: int
    """Answered after the deadline."""
    dropped: int
    """Dropped by the server because the deadline could not be met."""
    refused: Mapping[str, int]
    """Refused at once, by reason."""
    failed: Mapping[str, int]
    """Neither answered nor properly refused, by reason."""
    latencies: Latencies | None
    """None if no request was answered."""
    versions: Mapping[str, int]
    """Answers by model version."""
    labels_stored: int
    """Number of sent labels that the server stored."""
    labels_lost: int

    @property
    def in_time(self) -> int:
        """Answered in time, correctly or not."""
        return self.goodput + self.wrong

    @property
    def balance(self) -> int:
        """Requests sent minus all outcomes. It is 0 unless a request was not counted."""
        gone = sum(self.refused.values()) + sum(self.failed.values())
        return self.sent - (self.in_time + self.late + self.dropped + gone)

    @property
    def goodput_share(self) -> float:
        """Goodput over sent."""
        return self.goodput / self.sent if self.sent else 0.0

    @property
    def slo_attainment(self) -> float:
        """Answered in time over sent."""
        return self.in_time / self.sent if self.sent else 0.0

    @property
    def accuracy(self) -> float:
        """The share of correct answers among those in time."""
        return self.goodput / self.in_time if self.in_time else 0.0


@dataclass(frozen=True)
class ClientSeconds:
    """Counts of one tenant by second since the start of the run, by the due time of requests."""

    sent: tuple[int, ...]
    in_time: tuple[int, ...]
    goodput: tuple[int, ...]


@dataclass(frozen=True)
class ClientWindow:
    """One window as clients observed it."""

    window: int
    """The server's window number."""
    tenants: Mapping[str, ClientTally]
    whole: ClientTally


@dataclass(frozen=True)
class LoadOutcome:
    """The outcome of a whole load."""

    scenario: str
    url: str
    seed: int
    speed: float
    window_s: float
    windows: tuple[ClientWindow, ...]
    tenants: Mapping[str, ClientTally]
    whole: ClientTally
    seconds: Mapping[str, ClientSeconds]
    lag_p99_s: float
    """Delay between due time and sending; large if this machine is too slow."""
    ended: str | None
    """Why it ended early; None if it did not."""
    labels_at: str = "feedback"
    """When labels were sent: as `feedback` after answers, or at the `start` of their window."""
