"""GET /metrics: the router's counters as Prometheus reads them, put together when it asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from migrator.serve.counts import LATENCY_BOUNDS_S
from migrator.serve.router import Router

OUTCOMES = ("in_time", "late", "dropped", "failed")
STATES = ("idle", "busy", "draining")


class RouterMetrics(Collector):
    """What the router knows of every tenant."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from (self._received(), self._requests(), self._latency())
        yield from (self._queue(), self._workers())

    def _received(self) -> Metric:
        family = CounterMetricFamily(
            "migrator_received", "Rows of inputs that came.", labels=["tenant"]
        )
        for tenant, counts in self._router.counts.items():
            family.add_metric([tenant], counts.total.received)
        return family

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "migrator_requests",
            "Rows of inputs by what became of them.",
            labels=["tenant", "outcome"],
        )
        for tenant, counts in self._router.counts.items():
            for outcome in OUTCOMES:
                family.add_metric([tenant, outcome], getattr(counts.total, outcome))
        return family

    def _latency(self) -> Metric:
        family = HistogramMetricFamily(
            "migrator_latency_seconds", "From a request's arrival to its answer.", labels=["tenant"]
        )
        bounds = [*map(str, LATENCY_BOUNDS_S), "+Inf"]
        for tenant, counts in self._router.counts.items():
            sums = accumulate(counts.latencies)
            family.add_metric([tenant], list(zip(bounds, sums, strict=True)), counts.latency_sum_s)
        return family

    def _queue(self) -> Metric:
        family = GaugeMetricFamily(
            "migrator_queue_length", "Rows of inputs that wait for a worker.", labels=["tenant"]
        )
        for tenant in self._router.counts:
            family.add_metric([tenant], self._router.waiting(tenant))
        return family

    def _workers(self) -> Metric:
        family = GaugeMetricFamily(
            "migrator_workers", "Workers that requests are routed to.", labels=["tenant", "state"]
        )
        for tenant in self._router.counts:
            states = Counter(self._router.workers(tenant).values())
            for state in STATES:
                family.add_metric([tenant, state], states[state])
        return family


def metrics_text(router: Router, *others: Collector) -> bytes:
    """The whole page; `others` are collectors of whoever has more to tell."""
    registry = CollectorRegistry(auto_describe=False)
    for each in (RouterMetrics(router), *others):
        registry.register(each)
    return generate_latest(registry)
