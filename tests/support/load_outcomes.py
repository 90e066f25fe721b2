"""A load's outcome, as if it had been measured."""

from __future__ import annotations

from migrator.core.outcome import LoadOutcome
from migrator.load.ledger import Ledger


def load_outcome(ended: str | None = None) -> LoadOutcome:
    """Two windows of two tenants; `quiet` is never answered."""
    ledger = Ledger(["busy", "quiet"], [3, 4], 4)
    for number in range(100):
        window, second = 3 + number // 50, number // 25
        ledger.sent("busy", window, second, 0.001)
        account = ledger.account("busy", window)
        if number % 10 == 0:
            account.refused["queue full"] += 1
        elif number % 10 == 1:
            account.dropped += 1
        elif number % 10 == 2:
            account.fail("connection refused")
        else:
            account.latencies.append(number / 1000)
            account.versions["1" if number < 70 else "2"] += 1
            account.labels_stored += 1
            ledger.in_time("busy", window, second, right=number % 10 < 8)
    ledger.sent("quiet", 4, 3, 0.0)
    ledger.account("quiet", 4).fail("connection refused")
    about = {"scenario": "small", "url": "http://127.0.0.1:8600", "seed": 0}
    return ledger.outcome(**about, window_s=2.0, ended=ended)
