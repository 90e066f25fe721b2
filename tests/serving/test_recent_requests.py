"""Bounded memories: answered requests for feedback, counts by second and by latency."""

from __future__ import annotations

import weakref
from collections import Counter

import numpy as np
import pytest

from migrator.serving.http import recent_requests as state
from migrator.serving.http.metrics import ApiMetrics
from migrator.serving.http.recent_requests import RecentRequests
from migrator.serving.queue import KEPT_S, Counted, Counts, QueueSettings
from migrator.serving.router import Router

LABEL = [0]
ENTRY = 40 + 8 + state.ENTRY_BYTES
"""What one row of forty bytes takes."""


def test_the_oldest_are_forgotten_when_the_bytes_are_full() -> None:
    kept = RecentRequests(2 * ENTRY)
    for name in "abc":
        kept.add(name, np.zeros((1, 40), np.uint8), LABEL)
    assert len(kept) == 2
    assert kept.find("a") is None
    assert kept.find("c") is not None


def test_an_id_used_again_is_the_last_request_of_that_id() -> None:
    kept = RecentRequests(2 * ENTRY)
    for value in range(10):
        kept.add("same", np.full((1, 40), value, np.uint8), LABEL)
    kept.add("other", np.zeros((1, 40), np.uint8), LABEL)
    request = kept.find("same")
    assert request is not None
    assert request.inputs[0, 0] == 9


def test_what_is_kept_is_a_copy_and_what_is_held_is_counted() -> None:
    kept, bodies = RecentRequests(10 * ENTRY), []
    for number in range(20):
        body = np.full(10**5, number, np.uint8)
        bodies.append(weakref.ref(body))
        kept.add(str(number), body[:40].reshape(1, 40), LABEL)
    del body
    assert not any(body() is not None for body in bodies)
    assert len(kept) == 10
    request = kept.find("15")
    assert request is not None
    assert request.inputs.tolist() == [[15] * 40]


def test_old_seconds_are_forgotten_and_totals_are_not() -> None:
    counts = Counts()
    for second in range(2 * KEPT_S):
        came = counts.receive(second + 0.5, 2)
        counts.answer(came, 1, 0.05, late=False)
        counts.drop(came, 1)
    assert counts.total == Counted(received=4 * KEPT_S, in_time=2 * KEPT_S, dropped=2 * KEPT_S)
    assert counts.total.open == 0
    seconds = counts.seconds(0, 2 * KEPT_S)
    assert sum(second.received for second in seconds) == 2 * KEPT_S
    assert sum(counts.latencies) == 2 * KEPT_S


def test_the_latency_histogram_is_cumulative() -> None:
    router = Router({"t": QueueSettings("t", 1.0, 4)})
    counts = router.counts["t"]
    for latency_s, rows in ((0.0005, 1), (0.001, 1), (0.4, 2), (70.0, 3)):
        counts.answer(counts.receive(0.0, rows), rows, latency_s, late=False)
    families = {metric.name: metric for metric in ApiMetrics(router, Counter()).collect()}
    samples = families["migrator_latency_seconds"].samples
    values = {sample.labels.get("le", sample.name): sample.value for sample in samples}
    assert [values[bound] for bound in ("0.001", "0.3", "0.5", "10.0", "+Inf")] == [2, 2, 4, 4, 7]
    assert values["migrator_latency_seconds_count"] == 7
    assert values["migrator_latency_seconds_sum"] == pytest.approx(210.8015)
