"""Agents as Ray actors: one per GPU on the machine that has it, made again where it comes back.

Actors ask Ray for no GPU: it knows nothing of MIG. They only start, watch and order daemons;
requests never pass through them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from migrator.cluster.fleet.agent import TAKE_S, GpuAgent
from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.cluster.fleet.nodes import Node, Seat, require_seats, seats_of
from migrator.cluster.fleet.ray_connection import NAMESPACE, agents_of, nodes_of
from migrator.cluster.fleet.reports import Answer, Report
from migrator.core.errors import InputError
from migrator.live.serving import EMULATED
from migrator.serve.tokens import is_loopback

REPORT_S, LATE_REPORT_S = 1.0, 0.05
"""How long a report is waited for, and one that was late before."""
ANSWER_S = 2.0
"""How long a daemon that is asked without its agent may take."""
ORDER_S = TAKE_S + 10.0
LOOK_S = 2.0
"""Between two looks at which machines are there."""
AGAIN_S = 10.0
"""An agent that is gone for good is made again so often."""

_LIVE = "GET /v2/health/live HTTP/1.1\r\nconnection: close"

_log = logging.getLogger(__name__)


def agent_name(run: ClusterRun, gpu: str) -> str:
    """What its actor is called."""
    return f"{agents_of(run.name)}{gpu}"


class RayAgents:
    """The way to all agents, from whoever leads them."""

    def __init__(self, ray: Any, run: ClusterRun, variables: Mapping[str, str]) -> None:
        """`variables`: of the environment, for agents and their daemons."""
        self._ray, self._run, self._variables = ray, run, dict(variables)
        self._seats: dict[str, Seat] = {}
        self._nodes: dict[str, Node] = {}
        self._handles: dict[str, Any] = {}
        self._asking: dict[str, asyncio.Future[Any]] = {}
        self._made_s: dict[str, float] = {}
        self._looked_s = 0.0
        self.trouble = ""

    async def known(self) -> tuple[str, ...]:
        """GPUs that have an agent now, made where they can be and have none."""
        if time.monotonic() - self._looked_s > LOOK_S:
            self._looked_s = time.monotonic()
            nodes = await asyncio.to_thread(nodes_of, self._ray)
            self._seat(nodes)
        return tuple(self._handles)

    async def report(self, gpu: str, epoch: int) -> Report | None:
        """How it is; None: it does not answer.

        A question that hangs is not asked again: its answer counts whenever it comes, and until
        then no look at the other agents waits for it.
        """
        late = self._asking.pop(gpu, None)
        future = late or _future(self._handles[gpu].report.remote(epoch))
        limit_s = REPORT_S if late is None else LATE_REPORT_S
        try:
            report: Report = await asyncio.wait_for(asyncio.shield(future), limit_s)
        except TimeoutError:
            self._asking[gpu] = future
            return None
        except Exception as error:  # whatever Ray has for an actor that is not there
            self.trouble = f"{gpu}: {_cause(error)}"
            if isinstance(error, self._ray.exceptions.ActorDiedError):
                self._ended(gpu)
            return None
        if report.begun and report.began_s not in (0.0, self._run.began_s):
            self._run = replace(self._run, began_s=report.began_s)
        if report.node in self._nodes:  # an agent of a head before us sits where that one put it
            self._seats[gpu] = Seat(self._nodes[report.node], report.number)
        return report

    async def order(self, gpu: str, name: str, epoch: int, *what: object) -> Answer | None:
        """begin, take, release, drain or stop."""
        try:
            method = getattr(self._handles[gpu], name)
            answer: Answer = await asyncio.wait_for(_future(method.remote(epoch, *what)), ORDER_S)
        except Exception as error:  # whatever Ray has for an actor that is not there
            self.trouble = f"{name} of {gpu}: {_cause(error)}"
            _log.warning("%s", self.trouble)
            return None
        return answer

    async def answers(self, url: str) -> bool:
        """Whether a daemon lives, asked without its agent."""
        parts = urlsplit(url)
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
                try:
                    writer.write(f"{_LIVE}\r\nhost: {parts.netloc}\r\n\r\n".encode())
                    return b" 200 " in await reader.readline()
                finally:
                    writer.close()
        except (OSError, ValueError):
            return False

    def require_all(self) -> None:
        """InputError where a GPU of the scenario is in no machine."""
        nodes = nodes_of(self._ray)
        require_seats(self._run.scenario.gpus, self._seated(nodes), nodes)
        host = self._run.live.host
        if len({each.address for each in nodes}) > 1 and is_loopback(host):
            raise InputError(
                f"live.host: gateways cannot reach {host} of other machines; give 0.0.0.0, and "
                "tokens"
            )

    def end(self) -> None:
        """No agents any more; their daemons have been stopped."""
        for each in self._handles.values():
            self._ray.kill(each)
        self._handles.clear()

    def _ended(self, gpu: str) -> None:
        """Ray will not start it again: another is made, not too often where it dies at once."""
        if time.monotonic() - self._made_s.get(gpu, 0.0) > AGAIN_S:
            self._seats.pop(gpu, None)

    def _seated(self, nodes: list[Node]) -> dict[str, Seat]:
        real = self._run.driver != EMULATED
        return seats_of(self._run.scenario.gpus, nodes, self._seats, real=real)

    def _seat(self, nodes: list[Node]) -> None:
        self._nodes = {each.key: each for each in nodes}
        seats = self._seated(nodes)
        for gpu, seat in seats.items():
            if self._seats.get(gpu) != seat:
                self._handles[gpu] = self._agent(gpu, seat)
        self._seats |= seats

    def _agent(self, gpu: str, seat: Seat) -> Any:
        """Its actor: the one that is there, else a new one on that machine."""
        before = self._handles.get(gpu)
        if before is not None:
            self._ray.kill(before)  # of a machine that has gone
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
                seat.node.key, soft=False
            ),
        }
        actor = self._ray.remote(GpuAgent).options(**options)
        return actor.remote(self._run, gpu, seat.number, seat.node.key, seat.node.address)


def _cause(error: Exception) -> str:
    """Ray's words have the traceback in them; its last line is what went wrong."""
    lines = str(error).strip().splitlines()
    return lines[-1][:300] if lines else type(error).__name__


def _future(reference: Any) -> asyncio.Future[Any]:
    return asyncio.wrap_future(reference.future())
