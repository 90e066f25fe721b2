"""GET /metrics of a gateway: what it sent where, and the cluster as its head has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from migrator.cluster.fleet.forwarding import Forwarded
from migrator.cluster.fleet.map_source import MapSource
from migrator.serve.families import counter, gauge

_UP = ("up", "drained")


class ClusterMetrics(Collector):
    """Families about the gateway and the cluster."""

    def __init__(
        self, told: Mapping[str, Any] | None, counts: Forwarded, source: MapSource
    ) -> None:
        """`told`: None while nobody knows of the cluster."""
        self._told, self._counts, self._source = told, counts, source

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._gateway()
        if self._told is not None:
            yield from self._cluster(self._told)

    def _gateway(self) -> Iterator[Metric]:
        yield counter(
            "migrator_gateway_requests",
            "Requests by tenant and status code of the answer; 0: nobody answered.",
            ["tenant", "code"],
            {(name, str(code)): n for (name, code), n in self._counts.answers.items()},
        )
        yield counter(
            "migrator_gateway_sent_again",
            "Requests that were sent once more, as the map had become stale.",
            ["tenant"],
            {(name,): n for name, n in self._counts.again.items()},
        )
        yield gauge(
            "migrator_gateway_map_failures",
            "Times in a row that no map could be had; the last one stays in force.",
            [],
            {(): self._source.failures},
        )
        yield gauge(
            "migrator_gateway_map_version",
            "The version of the map in force, within its epoch.",
            ["epoch"],
            {(str(self._source.current.epoch),): self._source.current.version},
        )

    def _cluster(self, told: Mapping[str, Any]) -> Iterator[Metric]:
        gpus = told["gpus"]
        yield gauge(
            "migrator_cluster_gpu_up",
            "1 while the GPU's daemon serves, else 0.",
            ["gpu", "node"],
            {(e["gpu"], e.get("node", "")): e["state"] in _UP for e in gpus},
        )
        yield counter(
            "migrator_cluster_daemon_restarts",
            "Times that the GPU's agent has started its daemon again.",
            ["gpu", "node"],
            {(e["gpu"], e.get("node", "")): e.get("restarts", 0) for e in gpus},
        )
        yield gauge(
            "migrator_cluster_tenant_served",
            "1 while some GPU serves the tenant, else 0.",
            ["tenant", "gpu"],
            {(name, e["gpu"] or ""): e["state"] == "served" for name, e in told["tenants"].items()},
        )
        yield counter(
            "migrator_cluster_moves",
            "Tenants that this head has moved from one GPU to another while both served.",
            [],
            {(): told["moves"]},
        )
        yield gauge("migrator_cluster_epoch", "Of the head.", [], {(): told["epoch"]})


def metrics_text(told: Mapping[str, Any] | None, counts: Forwarded, source: MapSource) -> bytes:
    """The whole page."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ClusterMetrics(told, counts, source))
    return generate_latest(registry)
