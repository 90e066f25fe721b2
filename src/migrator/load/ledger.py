"""The outcome of every request of a load: counted as answers arrive, summed up at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from migrator.core.load_outcome import ClientSeconds, ClientTally, ClientWindow, Latencies

REFUSED = {429: "queue full", 503: "no instance ready"}
GIVEN_UP = 504
MOST_REASONS = 20
"""Number of failure reasons that are counted separately."""
OTHER = "other"


@dataclass
class Account:
    """Counts of one tenant in one window."""

    sent: int = 0
    goodput: int = 0
    wrong: int = 0
    late: int = 0
    dropped: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    latency_s: list[float] = field(default_factory=list)
    versions: Counter[str] = field(default_factory=Counter)
    labels_stored: int = 0
    labels_lost: int = 0

    def fail(self, reason: str) -> None:
        """Count a failed request."""
        known = reason in self.failed or len(self.failed) < MOST_REASONS
        self.failed[reason if known else OTHER] += 1

    def add(self, other: Account) -> None:
        """Add the counts of another account."""
        for name in ("sent", "goodput", "wrong", "late", "dropped"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.labels_stored += other.labels_stored
        self.labels_lost += other.labels_lost
        self.latency_s += other.latency_s
        for mine, its in ((self.refused, other.refused), (self.versions, other.versions)):
            mine.update(its)
        self.failed.update(other.failed)

    @property
    def tally(self) -> ClientTally:
        """The counts as a result."""
        return ClientTally(
            sent=self.sent,
            goodput=self.goodput,
            wrong=self.wrong,
            late=self.late,
            dropped=self.dropped,
            refused=dict(self.refused),
            failed=dict(self.failed),
            latencies=_latencies(self.latency_s),
            versions=dict(sorted(self.versions.items())),
            labels_stored=self.labels_stored,
            labels_lost=self.labels_lost,
        )


class Ledger:
    """All tenants and windows of a load."""

    def __init__(self, tenants: Sequence[str], windows: Sequence[int], seconds: int) -> None:
        self._tenants, self._windows = tuple(tenants), tuple(windows)
        self._accounts = {(name, window): Account() for name in tenants for window in windows}
        self._seconds = {name: np.zeros((3, seconds), dtype=np.int64) for name in tenants}
        self.lag_s: list[float] = []
        self.right = 0
        """Goodput so far, for the progress display."""

    def account(self, tenant: str, window: int) -> Account:
        """The counts of one tenant in one window."""
        return self._accounts[tenant, window]

    def sent(self, tenant: str, window: int, second: int, lag_s: float) -> None:
        """Count a request that was sent."""
        self.account(tenant, window).sent += 1
        self._seconds[tenant][0, second] += 1
        self.lag_s.append(lag_s)

    def in_time(self, tenant: str, window: int, second: int, *, right: bool) -> None:
        """Count a request that was answered within the objective."""
        account = self.account(tenant, window)
        account.goodput += right
        account.wrong += not right
        self.right += right
        self._seconds[tenant][1, second] += 1
        self._seconds[tenant][2, second] += right

    def tallies(self) -> dict[str, ClientTally]:
        """The counts of every tenant over all windows."""
        return {
            name: _sum(self._accounts[name, window] for window in self._windows).tally
            for name in self._tenants
        }

    def windows(self) -> tuple[ClientWindow, ...]:
        """Every window with requests."""
        found = []
        for window in self._windows:
            own = {name: self._accounts[name, window] for name in self._tenants}
            whole = _sum(own.values())
            if whole.sent:
                tallies = {name: each.tally for name, each in own.items()}
                found.append(ClientWindow(window, tallies, whole.tally))
        return tuple(found)

    def whole(self) -> ClientTally:
        """The counts of all tenants and windows."""
        return _sum(self._accounts.values()).tally

    def seconds(self) -> dict[str, ClientSeconds]:
        """The counts of every tenant by second."""
        return {
            name: ClientSeconds(*(tuple(row.tolist()) for row in counts))
            for name, counts in self._seconds.items()
        }

    def lag_p99_s(self) -> float:
        """99th percentile of the delay between due time and sending, in seconds."""
        return float(np.percentile(self.lag_s, 99)) if self.lag_s else 0.0


def _sum(accounts: Iterable[Account]) -> Account:
    whole = Account()
    for each in accounts:
        whole.add(each)
    return whole


def _latencies(latency_s: list[float]) -> Latencies | None:
    if not latency_s:
        return None
    return Latencies(*(float(each) for each in np.percentile(latency_s, (50, 95, 99))))
