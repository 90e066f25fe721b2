"""Metrics of a gateway and of the cluster behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from migrator.cluster.fleet.forwarding import ForwardCounts
from migrator.cluster.fleet.map_source import MapSource
from migrator.serving.http.metrics import counter, gauge

_UP = ("up", "drained")


class ClusterMetrics(Collector):
    """Metric families of the gateway and the cluster."""

    def __init__(
        self, overview: Mapping[str, Any] | None, counts: ForwardCounts, source: MapSource
    ) -> None:
        """`overview`: status of the cluster; None if it is not available."""
        self._overview, self._counts, self._source = overview, counts, source

    def collect(self) -> Iterator[Metric]:
        yield from self._gateway()
        if self._overview is not None:
            yield from self._cluster(self._overview)

    def _gateway(self) -> Iterator[Metric]:
        yield counter(
            "migrator_gateway_requests",
            "Requests by tenant and status code of the answer; 0: no answer.",
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

    def _cluster(self, overview: Mapping[str, Any]) -> Iterator[Metric]:
        gpus = overview["gpus"]
        yield gauge(
            "migrator_cluster_gpu_up",
            "1 while the GPU's daemon serves, else 0.",
            ["gpu", "node"],
            {(gpu["gpu"], gpu.get("node", "")): gpu["state"] in _UP for gpu in gpus},
        )
        yield counter(
            "migrator_cluster_daemon_restarts",
            "Times that the GPU's agent has started its daemon again.",
            ["gpu", "node"],
            {(gpu["gpu"], gpu.get("node", "")): gpu.get("restarts", 0) for gpu in gpus},
        )
        yield gauge(
            "migrator_cluster_tenant_served",
            "1 while some GPU serves the tenant, else 0.",
            ["tenant", "gpu"],
            {
                (name, tenant["gpu"] or ""): tenant["state"] == "served"
                for name, tenant in overview["tenants"].items()
            },
        )
        yield counter(
            "migrator_cluster_moves",
            "Tenants that this head has moved from one GPU to another while both served.",
            [],
            {(): overview["moves"]},
        )
        yield gauge("migrator_cluster_epoch", "Of the head.", [], {(): overview["epoch"]})
