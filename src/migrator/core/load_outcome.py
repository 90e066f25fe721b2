"""What clients saw of a live run: every request that was sent, counted once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Latencies:
    """From the moment a request was due to its answer, of those that were answered."""

    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True)
class ClientTally:
    """Requests by what became of them, as their sender saw it."""

    sent: int
    goodput: int
    """Answered in time and correctly."""
    wrong: int
    """Answered in time, but not correctly."""
    late: int
    """Answered after the deadline."""
    dropped: int
    """Given up by the server because the deadline could no longer be met."""
    refused: Mapping[str, int]
    """Turned away at once, by reason."""
    failed: Mapping[str, int]
    """Neither answered nor refused properly, by reason."""
    latencies: Latencies | None
    """None: nothing was answered."""
    versions: Mapping[str, int]
    """Answers by the version of the model that gave them."""
    labels_stored: int
    """Of the labels that were sent back."""
    labels_lost: int

    @property
    def in_time(self) -> int:
        """Answered in time, correctly or not."""
        return self.goodput + self.wrong

    @property
    def balance(self) -> int:
        """Sent less everything that became of it: 0, or a request was lost from the books."""
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
        """Correct among what was answered in time."""
        return self.goodput / self.in_time if self.in_time else 0.0


@dataclass(frozen=True)
class ClientSeconds:
    """One tenant second by second since the run began, by when requests were due."""

    sent: tuple[int, ...]
    in_time: tuple[int, ...]
    goodput: tuple[int, ...]


@dataclass(frozen=True)
class ClientWindow:
    """One window as clients saw it."""

    window: int
    """As the server counts."""
    tenants: Mapping[str, ClientTally]
    whole: ClientTally


@dataclass(frozen=True)
class LoadOutcome:
    """All of a load."""

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
    """How long after they were due requests were sent: large where this machine is too slow."""
    ended: str | None
    """Why it ended before all was sent; None: it did not."""
