"""Ray's own cluster of several nodes on this machine, with the variables small daemons need."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from migrator.agents.ray_connection import NAMESPACE, imported
from support.agents import VARIABLES

_NODE: dict[str, Any] = {
    "num_cpus": 1,
    "num_gpus": 0,
    "object_store_memory": 80 * 2**20,
    "include_dashboard": False,
}


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
        for each in names:
            if each not in self.nodes:  # none waits for the one before
                self.nodes[each] = self.cluster.add_node(wait=False, **_NODE, node_name=each)
        self.cluster.wait_for_nodes()

    def kill(self, name: str, pids: Sequence[int]) -> None:
        """As if the machine had lost its power: its Ray and these processes of it at once."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)


@contextmanager
def ray_nodes(*names: str) -> Iterator[RayNodes]:
    """A head node and these; ended whatever happens."""
    before = dict(os.environ)
    os.environ.update(VARIABLES)
    ray = imported()
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="mr")  # short: sockets lie below it
    cluster: Any = Cluster(
        initialize_head=True, head_node_args={**_NODE, "temp_dir": folder, "node_name": "first"}
    )
    try:
        ray.init(
            address=cluster.address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False
        )
        found = RayNodes(ray, cluster)
        found.restore(names)
        yield found
    finally:
        ray.shutdown()
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)
