"""Requests by outcome, and a load as its clients saw it; every request counts once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Tally:
    """Requests by outcome. Tallies can be added."""

    received: int = 0
    goodput: float = 0.0
    """Answered in time and correctly."""
    wrong: float = 0.0
    """Answered in time, but not correctly."""
    late: int = 0
    """Answered after the deadline."""
    dropped: int = 0
    """Dropped because the deadline could not be met."""
    queued: int = 0
    """Waiting at the end, minus those waiting at the beginning."""
    while_reconfiguring: int = 0
    """Late and dropped requests that arrived while an instance of their tenant was not warm."""
    failed: int = 0
    """Ended by an error."""
    unjudged: int = 0
    """Answered in time; whether correctly is unknown."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Tally)))

    @property
    def in_time(self) -> float:
        """Answered in time, correctly or not."""
        return self.goodput + self.wrong + self.unjudged

    @property
    def balance(self) -> float:
        """Requests received minus all outcomes. It is 0 unless a request was not counted."""
        ended = self.in_time + self.late + self.dropped + self.failed
        return self.received - (ended + self.queued)

    @property
    def goodput_share(self) -> float:
        """Goodput over received."""
        return self.goodput / self.received if self.received else 0.0

    @property
    def known_goodput(self) -> float | None:
        """Goodput; None if it is unknown whether some answers are correct."""
        return None if self.unjudged else self.goodput

    @property
    def known_share(self) -> float | None:
        """The same over received; None if nothing was received either."""
        return self.goodput_share if self.received and not self.unjudged else None

    @property
    def slo_attainment(self) -> float:
        """Answered in time over received."""
        return self.in_time / self.received if self.received else 0.0

    @property
    def accuracy(self) -> float:
        """The share of correct answers among the judged ones in time."""
        judged = self.goodput + self.wrong
        return self.goodput / judged if judged else 0.0

    @property
    def correct_share(self) -> float:
        """Correct answers over received, late ones included: accuracy as the paper defines it.

        Late answers count with the accuracy of those in time.
        """
        correct = self.goodput + self.late * self.accuracy
        return correct / self.received if self.received else 0.0


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
