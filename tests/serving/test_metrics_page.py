"""GET /metrics in the form that is asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as plain
from support.watched_run import eventful

from migrator.serving.http.metrics import ApiMetrics, metrics_page, metrics_parts
from migrator.serving.queue import QueueSettings
from migrator.serving.router import Router

open_metrics: Any = import_module("prometheus_client.openmetrics.parser")  # it has no types


def test_it_is_open_metrics_for_those_who_accept_it(tmp_path: Path) -> None:
    run = eventful(tmp_path)
    accepts = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    parts, kind = metrics_parts(run.state.all_collectors, accepts)
    text = b"".join(parts)
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")
    assert text.count(b"# EOF") == 1
    names = {family.name for family in open_metrics.text_string_to_metric_families(text.decode())}
    assert names == {metric.name.removesuffix("_info") for metric in plain(run.page())}


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/plain;version=0.0.4",
        "text/plain;version=x",
        ";;,=",
        "application/openmetrics-text;version=abc",
        "application/openmetrics-text;version=99.0.0",
    ],
)
def test_whatever_is_accepted_there_is_a_page(tmp_path: Path, accept: str) -> None:
    text, _ = asyncio.run(metrics_page(eventful(tmp_path).state.all_collectors, accept))
    assert b'migrator_received_total{tenant="photos"} 0.0\n' in text


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
