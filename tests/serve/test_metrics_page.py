"""GET /metrics in the form that is asked for."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as plain
from support.watched_run import eventful

from migrator.serve.http.metrics import Histogram, histogram, metrics_page, metrics_parts

open_metrics: Any = import_module("prometheus_client.openmetrics.parser")  # it has no types


def test_it_is_open_metrics_for_those_who_accept_it(tmp_path: Path) -> None:
    run = eventful(tmp_path)
    accepts = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    parts, kind = metrics_parts(run.state.all_collectors, accepts)
    text = b"".join(parts)
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")
    assert text.count(b"# EOF") == 1
    told = {each.name for each in open_metrics.text_string_to_metric_families(text.decode())}
    assert told == {each.name.removesuffix("_info") for each in plain(run.page())}


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


def test_a_histogram_counts_up_to_its_bounds() -> None:
    seconds = Histogram((0.1, 1.0))
    for each in (0.05, 0.1, 0.5, 7.0):
        seconds.add(each)
    seconds.add(2.0, times=3)
    (family,) = histogram("h", "words", [], {(): seconds})
    samples = family.samples
    assert {each.labels.get("le", each.name): each.value for each in samples} == {
        "0.1": 2,
        "1.0": 3,
        "+Inf": 7,
        "h_count": 7,
        "h_sum": pytest.approx(13.65),
    }
