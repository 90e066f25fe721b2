"""Counts the outcomes of a load's requests, by tenant and window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from migrator.core.outcome import ClientSeconds, ClientTally, ClientWindow, Latencies, LoadOutcome

MOST_REASONS = 20
"""Number of failure reasons that are counted separately."""
OTHER = "other"


@dataclass
class Account:
    """Counts of one tenant in one window, as in `ClientTally`."""

    sent: int = 0
    goodput: int = 0
    wrong: int = 0
    late: int = 0
    dropped: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    """In seconds."""
    versions: Counter[str] = field(default_factory=Counter)
    labels_stored: int = 0
    labels_lost: int = 0

    def fail(self, reason: str) -> None:
        has_room = reason in self.failed or len(self.failed) < MOST_REASONS
        self.failed[reason if has_room else OTHER] += 1


class Ledger:
    """All tenants and windows of a load."""

    def __init__(self, tenants: Sequence[str], windows: Sequence[int], seconds: int) -> None:
        self._tenants, self._windows = tuple(tenants), tuple(windows)
        self._accounts = {(name, window): Account() for name in tenants for window in windows}
        self._seconds = {name: np.zeros((3, seconds), dtype=np.int64) for name in tenants}
        self._lag_s: list[float] = []
        self.count = 0
        """Requests sent so far."""
        self.right = 0
        """Goodput so far."""

    def account(self, tenant: str, window: int) -> Account:
        return self._accounts[tenant, window]

    def sent(self, tenant: str, window: int, second: int, lag_s: float) -> None:
        self.account(tenant, window).sent += 1
        self._seconds[tenant][0, second] += 1
        self._lag_s.append(lag_s)
        self.count += 1

    def in_time(self, tenant: str, window: int, second: int, *, right: bool) -> None:
        account = self.account(tenant, window)
        account.goodput += right
        account.wrong += not right
        self.right += right
        self._seconds[tenant][1, second] += 1
        self._seconds[tenant][2, second] += right

    def outcome(self, *, ended: str | None, **about: Any) -> LoadOutcome:
        accounts = self._accounts
        windows = []
        for window in self._windows:
            accounts_of_window = {name: accounts[name, window] for name in self._tenants}
            if any(account.sent for account in accounts_of_window.values()):
                tallies = {name: _tally([account]) for name, account in accounts_of_window.items()}
                windows.append(ClientWindow(window, tallies, _tally(accounts_of_window.values())))
        return LoadOutcome(
            windows=tuple(windows),
            tenants={
                name: _tally(accounts[name, window] for window in self._windows)
                for name in self._tenants
            },
            whole=_tally(accounts.values()),
            seconds={
                name: ClientSeconds(*(tuple(row.tolist()) for row in counts))
                for name, counts in self._seconds.items()
            },
            lag_p99_s=float(np.percentile(self._lag_s, 99)) if self._lag_s else 0.0,
            ended=ended,
            **about,
        )


def _tally(accounts: Iterable[Account]) -> ClientTally:
    whole = Account()
    for account in accounts:
        for count in fields(account):
            mine, other = getattr(whole, count.name), getattr(account, count.name)
            if isinstance(mine, Counter):
                mine.update(other)
            else:
                setattr(whole, count.name, mine + other)
    counts: dict[str, Any] = {
        name: dict(value) if isinstance(value, Counter) else value
        for name, value in vars(whole).items()
    }
    counts["versions"] = dict(sorted(whole.versions.items()))
    counts["latencies"] = None
    if whole.latencies:
        points = np.percentile(whole.latencies, (50, 95, 99))
        counts["latencies"] = Latencies(*(float(point) for point in points))
    return ClientTally(**counts)
