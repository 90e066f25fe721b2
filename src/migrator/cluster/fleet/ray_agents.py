"""Agents as Ray actors: one per GPU, on its machine, created again when the machine returns.

The actors request no GPU from Ray, because Ray does not support MIG. They only start, supervise and
order daemons; requests never pass through them.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from migrator.cluster.fleet.agent import TAKE_S, GpuAgent
from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.cluster.fleet.messages import Answer, Report
from migrator.cluster.fleet.ray_clusters import NAMESPACE, Node, agent_prefix, list_nodes
from migrator.cluster.scenario import ClusterGpu
from migrator.core.errors import InputError
from migrator.gpu.drivers.base import DriverKind
from migrator.io.strict import listed
from migrator.serving.http.access import is_loopback

REPORT_S, LATE_REPORT_S = 1.0, 0.05
"""Seconds to wait for a report, and for a report that was late before."""
ANSWER_S = 1.5
"""Seconds to wait for a daemon's health check without its agent."""
ORDER_S = TAKE_S + 10.0
POLL_S = 2.0
"""Seconds between two checks of which machines are alive."""
AGAIN_S = 10.0
"""Minimum seconds between two attempts to create an agent that has died."""

_LIVE = "GET /v2/health/live HTTP/1.1\r\nconnection: close"

_log = logging.getLogger(__name__)


def agent_name(run: ClusterRun, gpu: str) -> str:
    """Name of the GPU's actor."""
    return f"{agent_prefix(run.name)}{gpu}"


class RayAgents:
    """Creates the agents and connects the head to them."""

    def __init__(self, ray: Any, run: ClusterRun, variables: Mapping[str, str]) -> None:
        """`variables`: environment variables for agents and their daemons."""
        self._ray, self._run, self._variables = ray, run, dict(variables)
        self._locations: dict[str, GpuLocation] = {}
        self._nodes: dict[str, Node] = {}
        self._handles: dict[str, Any] = {}
        self._asking: dict[str, asyncio.Future[Any]] = {}
        self._made_s: dict[str, float] = {}
        self._polled_s = 0.0
        self.trouble = ""

    async def gpus(self) -> tuple[str, ...]:
        """GPUs that have an agent; missing agents are created where possible."""
        if time.monotonic() - self._polled_s > POLL_S:
            self._polled_s = time.monotonic()
            nodes = await asyncio.to_thread(list_nodes, self._ray)
            self._update_agents(nodes)
        return tuple(self._handles)

    async def report(self, gpu: str, epoch: int) -> Report | None:
        """Return the agent's report; None if it does not respond.

        A pending request is not repeated: its answer counts whenever it arrives, and reports of
        other agents do not wait for it.
        """
        late = self._asking.pop(gpu, None)
        future = late or _future(self._handles[gpu].report.remote(epoch))
        limit_s = REPORT_S if late is None else LATE_REPORT_S
        try:
            report: Report = await asyncio.wait_for(asyncio.shield(future), limit_s)
        except TimeoutError:
            self._asking[gpu] = future
            return None
        except Exception as error:  # any Ray error for an actor that is unavailable
            self.trouble = f"{gpu}: {_cause(error)}"
            if isinstance(error, self._ray.exceptions.ActorDiedError):
                self._ended(gpu)
            return None
        if report.begun and report.began_s not in (0.0, self._run.began_s):
            self._run = replace(self._run, began_s=report.began_s)
        if report.node in self._nodes:  # an earlier head may have placed this agent elsewhere
            self._locations[gpu] = GpuLocation(self._nodes[report.node], report.number)
        return report

    async def order(self, gpu: str, name: str, epoch: int, *arguments: object) -> Answer | None:
        """Send begin, take, release, drain or stop."""
        try:
            reference = getattr(self._handles[gpu], name).remote(epoch, *arguments)
            answer: Answer = await asyncio.wait_for(_future(reference), ORDER_S)
        except Exception as error:  # any Ray error for an actor that is unavailable
            self.trouble = f"{name} of {gpu}: {_cause(error)}"
            _log.warning("%s", self.trouble)
            return None
        return answer

    async def answers(self, url: str) -> bool:
        """Whether a daemon is alive, checked without its agent."""
        parts, context = urlsplit(url), None
        if parts.scheme == "https":  # nothing secret is sent: who answers does not matter
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection(
                    *(parts.hostname, parts.port), ssl=context
                )
                try:
                    writer.write(f"{_LIVE}\r\nhost: {parts.netloc}\r\n\r\n".encode())
                    return b" 200 " in await reader.readline()
                finally:
                    writer.close()
        except (OSError, ValueError):
            return False

    def require_all(self) -> None:
        """Raise InputError if a GPU of the scenario is in no machine."""
        nodes = list_nodes(self._ray)
        require_located(self._run.scenario.gpus, self._located(nodes), nodes)
        host = self._run.live.host
        if len({node.address for node in nodes}) > 1 and is_loopback(host):
            raise InputError(
                f"live.host: gateways cannot reach {host} of other machines; give 0.0.0.0, and "
                "tokens"
            )

    def end(self) -> None:
        for handle in self._handles.values():
            self._ray.kill(handle)
        self._handles.clear()

    def _ended(self, gpu: str) -> None:
        """Let `gpus` create another agent, at a limited rate: Ray does not restart this one."""
        if time.monotonic() - self._made_s.get(gpu, 0.0) > AGAIN_S:
            self._locations.pop(gpu, None)

    def _located(self, nodes: list[Node]) -> dict[str, GpuLocation]:
        real = self._run.driver != DriverKind.EMULATED
        return locate_gpus(self._run.scenario.gpus, nodes, self._locations, real=real)

    def _update_agents(self, nodes: list[Node]) -> None:
        self._nodes = {node.key: node for node in nodes}
        locations = self._located(nodes)
        for gpu, location in locations.items():
            if self._locations.get(gpu) != location:
                self._handles[gpu] = self._agent(gpu, location)
        self._locations |= locations

    def _agent(self, gpu: str, location: GpuLocation) -> Any:
        """The GPU's actor: the existing one, else a new one on that machine."""
        before = self._handles.get(gpu)
        if before is not None:
            self._ray.kill(before)  # on a machine that is gone
            self._asking.pop(gpu, None)
        self._made_s[gpu] = time.monotonic()
        strategies = self._ray.util.scheduling_strategies
        options = {
            "name": agent_name(self._run, gpu),
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_restarts": -1,
            "max_concurrency": 8,
            "num_cpus": 0,
            "num_gpus": 0,
            "runtime_env": {"env_vars": self._variables},
            "scheduling_strategy": strategies.NodeAffinitySchedulingStrategy(
                location.node.key, soft=False
            ),
        }
        actor = self._ray.remote(GpuAgent).options(**options)
        return actor.remote(
            self._run, gpu, location.number, location.node.key, location.node.address
        )


def _cause(error: Exception) -> str:
    """The last line of Ray's message, which contains a traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1][:300] if lines else type(error).__name__


def _future(reference: Any) -> asyncio.Future[Any]:
    return asyncio.wrap_future(reference.future())


@dataclass(frozen=True)
class GpuLocation:
    """Machine and index of a GPU."""

    node: Node
    number: int
    """Index among the GPUs of its machine."""


def locate_gpus(
    gpus: Sequence[ClusterGpu],
    nodes: Sequence[Node],
    held: Mapping[str, GpuLocation],
    *,
    real: bool,
) -> dict[str, GpuLocation]:
    """GPU -> its location, for GPUs whose machine is alive; `held` locations stay.

    GPUs without a named machine are spread, `real` ones only over machines where Ray reports GPUs.
    """
    alive = {node.key for node in nodes}
    locations = {name: location for name, location in held.items() if location.node.key in alive}
    taken = Counter(location.node.key for location in locations.values())
    for gpu in gpus:
        if gpu.name in locations:
            continue
        node = _node_of(gpu, nodes, taken, real=real)
        if node is not None:
            used = {
                location.number for location in locations.values() if location.node.key == node.key
            }
            number = next(index for index in range(len(used) + 1) if index not in used)
            locations[gpu.name] = GpuLocation(node, number)
            taken[node.key] += 1
    return locations


def _node_of(
    gpu: ClusterGpu, nodes: Sequence[Node], taken: Counter[str], *, real: bool
) -> Node | None:
    if gpu.node is not None:
        return next((node for node in nodes if gpu.node in node.names), None)
    able = [node for node in nodes if not real or taken[node.key] < node.gpus]
    return min(able, key=lambda node: taken[node.key], default=None)


def require_located(
    gpus: Sequence[ClusterGpu], locations: Mapping[str, GpuLocation], nodes: Sequence[Node]
) -> None:
    """Raise InputError if a GPU of the scenario has no location."""
    missing = [gpu for gpu in gpus if gpu.name not in locations]
    if not missing:
        return
    first = missing[0]
    names = listed([min(node.names, key=len) for node in nodes], last="and")
    if first.node is not None:
        raise InputError(
            f"cluster.gpus: {first.name} is in {first.node}, which is not part of the Ray cluster; "
            f"start Ray there with `ray start --address ... --node-name {first.node}` (there are "
            f"{names})"
        )
    raise InputError(
        f"cluster.gpus: no machine has a GPU left for {first.name}; start Ray on more machines, or "
        f"take it out of the scenario (there are {names})"
    )
