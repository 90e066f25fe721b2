"""GET /metrics: the router's counters as Prometheus reads them, put together when it asks."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from migrator.serve.access_log import AccessLog
from migrator.serve.backend import Backend
from migrator.serve.counts import LATENCY_BOUNDS_S
from migrator.serve.families import Histogram, counter, gauge, histogram
from migrator.serve.router import Router

OUTCOMES = ("in_time", "late", "dropped", "failed")
STATES = ("idle", "busy", "draining")
_END = b"# EOF\n"
"""Of a page in OpenMetrics."""
_HEAD = re.compile(rb"^#.*\n", re.MULTILINE)
"""What is said of a family before its samples."""


class RouterMetrics(Collector):
    """What the router knows of every tenant."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def collect(self) -> Iterator[Metric]:
        """All families."""
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
    """What the API refused."""

    def __init__(self, access: AccessLog) -> None:
        self._access = access

    def collect(self) -> Iterator[Metric]:
        """One family."""
        yield counter(
            "migrator_refusals",
            "HTTP requests that were not answered as asked, by status code; the tenant is empty "
            "where none of ours was named.",
            ["tenant", "code"],
            {(name, str(code)): count for (name, code), count in self._access.refused.items()},
        )


@dataclass(frozen=True)
class _Alone(Collector):
    """One family, so that it can be put into text without the others."""

    family: Metric

    def collect(self) -> Iterator[Metric]:
        """That family."""
        yield self.family


def metrics_parts(backend: Backend, accept: str = "") -> tuple[Iterator[bytes], str]:
    """The page family by family, and its content type: OpenMetrics for those who accept it."""
    try:
        encode, kind = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number
        encode, kind = choose_encoder("")
    return _encoded(_families(backend), encode), kind


async def metrics_page(backend: Backend, accept: str = "") -> tuple[bytes, str]:
    """The whole page and its content type; between any two families requests have their turn."""
    parts, kind = metrics_parts(backend, accept)
    page = []
    for each in parts:
        page.append(each)
        await asyncio.sleep(0)
    return b"".join(page), kind


def _families(backend: Backend) -> Iterator[Metric]:
    ours = (RouterMetrics(backend.router), RefusalMetrics(backend.access))
    for each in (*ours, *backend.collectors):
        yield from each.collect()


def _encoded(families: Iterable[Metric], encode: Callable[[Collector], bytes]) -> Iterator[bytes]:
    """Each as text; what every page begins and ends with comes once, also for parts of a family."""
    end, before = b"", ""
    for each in families:
        text = encode(_Alone(each))
        end = _END if text.endswith(_END) else b""
        text = text.removesuffix(end)
        yield _HEAD.sub(b"", text) if each.name == before else text
        before = each.name
    yield end
