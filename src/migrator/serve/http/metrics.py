"""Prometheus metrics: families made from plain numbers, the router's families, and the page."""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from migrator.serve.http.access_log import AccessLog
from migrator.serve.router.counts import LATENCY_BOUNDS_S
from migrator.serve.router.router import Router

Values = Mapping[tuple[str, ...], float]
"""Values by labels."""


@dataclass
class Histogram:
    """A histogram that is counted by hand."""

    bounds: Sequence[float]
    """Upper bounds, without the infinite one."""
    sum: float = 0.0
    counts: list[int] = field(default_factory=list)
    """Not cumulative; the infinite bucket is the last."""

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Count a value `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


def counter(name: str, words: str, labels: Iterable[str], values: Values) -> Metric:
    """A counter family; its samples are called `name`_total."""
    family = CounterMetricFamily(name, words, labels=list(labels))
    for each, value in values.items():
        family.add_metric(each, value)
    return family


def gauge(name: str, words: str, labels: Iterable[str], values: Values) -> Metric:
    """A gauge family."""
    family = GaugeMetricFamily(name, words, labels=list(labels))
    for each, value in values.items():
        family.add_metric(each, value)
    return family


def histogram(
    name: str, words: str, labels: Iterable[str], values: Mapping[tuple[str, ...], Histogram]
) -> Iterator[Metric]:
    """A histogram family, in one part per label set, since it has many samples."""
    for each, value in values.items():
        family = HistogramMetricFamily(name, words, labels=list(labels))
        bounds = [*map(str, value.bounds), "+Inf"]
        family.add_metric(each, list(zip(bounds, accumulate(value.counts), strict=True)), value.sum)
        yield family
    if not values:
        yield HistogramMetricFamily(name, words, labels=list(labels))


def info(name: str, words: str, rows: Iterable[Mapping[str, str]]) -> Metric:
    """An info family: texts as labels of a 1; its samples are called `name`_info."""
    family = InfoMetricFamily(name, words)
    for each in rows:
        family.add_metric((), dict(each))
    return family


OUTCOMES = ("in_time", "late", "dropped", "failed")
STATES = ("idle", "busy", "draining")
_END = b"# EOF\n"
"""The last line of a page in OpenMetrics."""
_HEAD = re.compile(rb"^#.*\n", re.MULTILINE)
"""The comments before the samples of a family."""


class RouterMetrics(Collector):
    """The router's counters of every tenant."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client."""
        yield self._received()
        yield self._requests()
        yield from self._latency()
        yield self._objective()
        yield self._queue()
        yield self._workers()

    def _received(self) -> Metric:
        counts = self._router.counts
        return counter(
            "migrator_received",
            "Rows of inputs that clients sent to a tenant; one request may bring several.",
            ["tenant"],
            {(name,): each.total.received for name, each in counts.items()},
        )

    def _requests(self) -> Metric:
        return counter(
            "migrator_requests",
            "Rows of inputs by outcome: in_time and late were answered, dropped ones refused or "
            "given up before their deadline passed, failed ones raised in the model.",
            ["tenant", "outcome"],
            {
                (name, outcome): getattr(each.total, outcome)
                for name, each in self._router.counts.items()
                for outcome in OUTCOMES
            },
        )

    def _latency(self) -> Iterator[Metric]:
        return histogram(
            "migrator_latency_seconds",
            "From a request's arrival to its answer, for those that were answered.",
            ["tenant"],
            {
                (name,): Histogram(LATENCY_BOUNDS_S, each.latency_sum_s, [*each.latencies])
                for name, each in self._router.counts.items()
            },
        )

    def _objective(self) -> Metric:
        return gauge(
            "migrator_objective_seconds",
            "The latency objective: an answer after it is late.",
            ["tenant"],
            {(name,): self._router.served(name).slo_s for name in self._router.counts},
        )

    def _queue(self) -> Metric:
        return gauge(
            "migrator_queue_length",
            "Rows of inputs that wait for a worker now.",
            ["tenant"],
            {(name,): self._router.waiting(name) for name in self._router.counts},
        )

    def _workers(self) -> Metric:
        values: dict[tuple[str, ...], float] = {}
        for tenant in self._router.counts:
            states = Counter(self._router.workers(tenant).values())
            values |= {(tenant, state): states[state] for state in STATES}
        return gauge(
            "migrator_workers",
            "Workers that requests are routed to; a draining one gets no new ones.",
            ["tenant", "state"],
            values,
        )


class RefusalMetrics(Collector):
    """Refusals of the API."""

    def __init__(self, access: AccessLog) -> None:
        self._access = access

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client."""
        yield counter(
            "migrator_refusals",
            "HTTP requests that were not answered as asked, by status code; the tenant is empty "
            "where none of ours was named.",
            ["tenant", "code"],
            {(name, str(code)): count for (name, code), count in self._access.refused.items()},
        )


@dataclass(frozen=True)
class _Alone(Collector):
    """One family, to encode it without the others."""

    family: Metric

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client."""
        yield self.family


def metrics_parts(collectors: Iterable[Collector], accept: str = "") -> tuple[Iterator[bytes], str]:
    """The page family by family, and its content type: OpenMetrics where `accept` permits it."""
    try:
        encode, kind = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is not a number
        encode, kind = choose_encoder("")
    families = (family for each in collectors for family in each.collect())
    return _encode(families, encode), kind


async def metrics_page(collectors: Iterable[Collector], accept: str = "") -> tuple[bytes, str]:
    """The whole page and its content type; other requests are served between two families."""
    parts, kind = metrics_parts(collectors, accept)
    page = []
    for each in parts:
        page.append(each)
        await asyncio.sleep(0)
    return b"".join(page), kind


def _encode(families: Iterable[Metric], encode: Callable[[Collector], bytes]) -> Iterator[bytes]:
    """Each as text; the comments of a family in several parts, and the end, come once."""
    end, before = b"", ""
    for each in families:
        text = encode(_Alone(each))
        end = _END if text.endswith(_END) else b""
        text = text.removesuffix(end)
        yield _HEAD.sub(b"", text) if each.name == before else text
        before = each.name
    yield end
