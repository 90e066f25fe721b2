"""Prometheus metrics: families made from plain numbers, the API's own families, and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from migrator.serving.queue import LATENCY_BOUNDS_S
from migrator.serving.router import Router

Values = Mapping[tuple[str, ...], float]
"""Values by labels."""
OUTCOMES = ("in_time", "late", "dropped", "failed")
STATES = ("idle", "busy", "draining")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of the text format of Prometheus."""


def counter(name: str, words: str, labels: Iterable[str], values: Values) -> Metric:
    """A counter family; its samples are called `name`_total."""
    return _filled(CounterMetricFamily(name, words, labels=list(labels)), values)


def gauge(name: str, words: str, labels: Iterable[str], values: Values) -> Metric:
    """A gauge family."""
    return _filled(GaugeMetricFamily(name, words, labels=list(labels)), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Values) -> Metric:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def info(name: str, words: str, rows: Iterable[Mapping[str, str]]) -> Metric:
    """An info family: texts as labels of a 1; its samples are called `name`_info."""
    family = InfoMetricFamily(name, words)
    for row in rows:
        family.add_metric((), dict(row))
    return family


@dataclass(frozen=True)
class ApiMetrics(Collector):
    """The router's counters of every tenant, and the refusals of the API."""

    router: Router
    refused: Counter[tuple[str, int]]

    def collect(self) -> Iterator[Metric]:
        router, counts = self.router, self.router.counts
        yield counter(
            "migrator_received",
            "Rows of inputs that clients sent; one request may bring several.",
            ["tenant"],
            {(name,): count.total.received for name, count in counts.items()},
        )
        yield counter(
            "migrator_requests",
            "Rows of inputs by outcome: in_time and late were answered, dropped refused or given "
            "up, failed raised in the model.",
            ["tenant", "outcome"],
            {
                (name, outcome): getattr(count.total, outcome)
                for name, count in counts.items()
                for outcome in OUTCOMES
            },
        )
        yield self._latencies()
        yield gauge(
            "migrator_objective_seconds",
            "The latency objective.",
            ["tenant"],
            {(name,): router.settings(name).slo_s for name in counts},
        )
        yield gauge(
            "migrator_queue_length",
            "Rows of inputs that wait for a worker now.",
            ["tenant"],
            {(name,): router.waiting(name) for name in counts},
        )
        workers = {name: Counter(router.workers(name).values()) for name in counts}
        yield gauge(
            "migrator_workers",
            "Workers that serve; a draining one gets no new requests.",
            ["tenant", "state"],
            {(name, state): worker[state] for name, worker in workers.items() for state in STATES},
        )
        yield counter(
            "migrator_refusals",
            "HTTP requests that were refused, by status code; the tenant is empty where none of "
            "ours was named.",
            ["tenant", "code"],
            {(name, str(code)): count for (name, code), count in self.refused.items()},
        )

    def _latencies(self) -> Metric:
        family = HistogramMetricFamily(
            "migrator_latency_seconds", "From a request's arrival to its answer.", labels=["tenant"]
        )
        bounds = [*map(str, LATENCY_BOUNDS_S), "+Inf"]
        for tenant, count in self.router.counts.items():
            buckets = list(zip(bounds, accumulate(count.latencies), strict=True))
            family.add_metric((tenant,), buckets, count.latency_sum_s)
        return family


def metrics_parts(collectors: Iterable[Collector]) -> Iterator[bytes]:
    """The page in the text format of Prometheus, collector by collector."""
    return map(generate_latest, collectors)
