"""The families of GET /metrics."""

from __future__ import annotations

from collections import Counter

import pytest

from migrator.serving.http.metrics import ApiMetrics
from migrator.serving.queue import QueueSettings
from migrator.serving.router import Router


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
