"""Ray's own cluster of several nodes on this machine, with the variables small daemons need."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migrator.cluster.fleet.ray_clusters import NAMESPACE
from migrator.io.ray_cluster import import_ray
from support.agents import VARIABLES
from support.waiting import LIMIT_S

_NODE: dict[str, Any] = {
    "num_cpus": 1,
    "num_gpus": 0,
    "object_store_memory": 80 * 2**20,
    "include_dashboard": False,
    "include_log_monitor": False,
    "no_monitor": True,
}
"""Without Ray's processes for logs and autoscaling, which take seconds to start."""
_SETTINGS = {
    "RAY_worker_niceness": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
    "RAY_raylet_start_wait_time_s": "120",
}
"""At nice level 15 an actor needs minutes to start beside other tests. Processes for tasks start
when they are needed, not for every program that connects, and stay for the next task."""


@dataclass
class RayNodes:
    """The nodes by name; this process is connected to them."""

    ray: Any
    cluster: Any
    nodes: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def restore(self, names: Sequence[str]) -> None:
        """Those that are not there come, or come back as new machines of the same name."""
        for name in names:
            if name not in self.nodes:  # none waits for the one before
                self.nodes[name] = self.cluster.add_node(wait=False, **_NODE, node_name=name)
        self.cluster.wait_for_nodes(LIMIT_S)

    def kill(self, name: str, pids: Sequence[int]) -> None:
        """As if the machine had lost its power: its Ray and these processes of it at once."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)


@contextmanager
def ray_nodes(*names: str) -> Iterator[RayNodes]:
    """A head node and these; ended whatever happens."""
    ray = import_ray()
    from ray.cluster_utils import Cluster

    with ray_folder(), ExitStack() as stack:
        os.environ.update({**VARIABLES, **_SETTINGS})
        cluster: Any = Cluster(initialize_head=True, head_node_args={**_NODE, "node_name": "first"})
        stack.callback(cluster.shutdown)
        stack.callback(ray.shutdown)
        ray.init(
            address=cluster.address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False
        )
        nodes = RayNodes(ray, cluster)
        nodes.restore(names)
        yield nodes


@contextmanager
def ray_folder() -> Iterator[Path]:
    """A temporary folder that is Ray's default one until the end, then the environment as before.

    Ray's own test cluster writes its address below the default folder and does not create it. In
    /tmp, whatever TMPDIR is: paths of sockets have at most 107 characters.
    """
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="mr", dir="/tmp", ignore_cleanup_errors=True) as made:
        folder = Path(made, "ray")
        folder.mkdir()
        os.environ["RAY_TMPDIR"] = made
        os.environ.pop("RAY_ADDRESS", None)
        try:
            yield folder
        finally:
            os.environ.clear()
            os.environ.update(before)
