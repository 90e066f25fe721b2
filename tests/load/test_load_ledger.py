"""The ledger of a load: sums are sums, percentiles are percentiles, reasons stay few."""

from __future__ import annotations

import numpy as np
import pytest
from support.load_outcomes import load_outcome

from migrator.load.ledger import MOST_REASONS, OTHER, Account


def test_windows_and_tenants_add_up() -> None:
    outcome = load_outcome()
    busy = outcome.tenants["busy"]
    assert (busy.sent, busy.goodput, busy.wrong, busy.dropped) == (100, 50, 20, 10)
    assert (busy.refused, busy.failed) == ({"queue full": 10}, {"connection refused": 10})
    assert busy.versions == {"1": 49, "2": 21}
    assert (busy.goodput_share, busy.slo_attainment) == (0.5, 0.7)
    assert busy.accuracy == pytest.approx(5 / 7)
    assert [window.whole.sent for window in outcome.windows] == [50, 51]
    assert [window.window for window in outcome.windows] == [3, 4]
    assert outcome.whole.failed == {"connection refused": 11}
    assert outcome.whole.balance == busy.balance == 0
    assert outcome.seconds["busy"].sent == (25, 25, 25, 25)
    assert sum(outcome.seconds["busy"].goodput) == 50


def test_percentiles_are_over_all_windows_and_none_without_answers() -> None:
    outcome = load_outcome()
    answered = [number / 1000 for number in range(100) if number % 10 > 2]
    assert outcome.whole.latencies is not None
    assert outcome.whole.latencies.p95_s == pytest.approx(np.percentile(answered, 95))
    quiet = outcome.tenants["quiet"]
    assert (quiet.latencies, quiet.accuracy, quiet.goodput_share) == (None, 0.0, 0.0)


def test_reasons_do_not_grow_without_end() -> None:
    account = Account()
    for number in range(1000):
        account.fail(f"reason {number}")
    account.fail("reason 3")
    assert len(account.failed) == MOST_REASONS + 1
    assert account.failed["reason 3"] == 2
    assert account.failed[OTHER] == 1000 - MOST_REASONS
