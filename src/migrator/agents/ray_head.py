"""The head as a Ray actor that Ray starts again when it dies; there is one of its name."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from migrator.agents.cluster_run import ClusterRun
from migrator.agents.head import Head
from migrator.agents.links import DeposedError
from migrator.agents.overview import overview
from migrator.agents.placer import Question, answered
from migrator.agents.ray_agents import RayAgents
from migrator.agents.ray_connection import HEAD, NAMESPACE, imported
from migrator.agents.reports import ClusterMap
from migrator.core.cluster import ClusterPlan
from migrator.core.errors import MigratorError
from migrator.runtime.shared_store import SharedStore
from migrator.scenario.live import ADMIN
from migrator.scenario.tokens import read_tokens
from migrator.serve.tokens import digest

HERE = {"node:__internal_head__": 0.001}
"""Where Ray's own head is: nothing outlives that, and all else may die without it."""
MAP_FILE = "map.json"
MOVE_S = 300.0

_log = logging.getLogger(__name__)


class HeadActor:
    """Leads in a thread of its own; its methods answer at once."""

    def __init__(self, run: ClusterRun, variables: Mapping[str, str]) -> None:
        logging.basicConfig(level=logging.INFO)
        self._run = run
        self._links = RayAgents(imported(), run, variables)
        self._head = Head(run, self._links, publish=self._published, aside=_in_another_process)
        self._writing = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ended: str | None = None
        self._thread = threading.Thread(target=self._lead, name="head", daemon=True)
        self._thread.start()

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def map(self) -> bytes:
        """Who lives where, as JSON."""
        return msgspec.json.encode(self._head.map)

    def overview(self) -> dict[str, Any]:
        """Everything that people want to know of the cluster."""
        return overview(self._head, self._ended)

    def ended(self) -> str | None:
        """Why it leads no more; None: it does."""
        return self._ended

    def serves(self, run: ClusterRun) -> bool:
        """Whether that is what it leads."""
        ours = self._run
        return (run.data, run.driver, run.folder, run.shared) == (
            ours.data,
            ours.driver,
            ours.folder,
            ours.shared,
        )

    def move(self, tenant: str, gpu: str) -> str:
        """Move a tenant now; what was done in words."""
        doing = asyncio.run_coroutine_threadsafe(self._head.move(tenant, gpu), self._loop)
        return doing.result(MOVE_S)

    def stop(self) -> None:
        """Drain and end every daemon and agent; returns when that is done."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._links.end()

    def _lead(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._led())
        except DeposedError as error:
            self._ended = str(error)
        except MigratorError as error:
            self._ended = str(error)
            _log.error("%s", error)
        except Exception as error:
            self._ended = f"{type(error).__name__}: {error}; see the head's log"
            _log.exception("the head failed in a way nobody thought of")

    async def _led(self) -> None:
        self._store = SharedStore(self._run.shared, "head")
        self._head.map = ClusterMap(admin=_admin(self._run))
        self._links.require_all()
        await self._head.run(self._stop)
        await self._head.stop_all()

    def _published(self) -> None:
        """For gateways without Ray."""
        with self._writing:  # one at a time, so that the newest is written last
            self._store.write(MAP_FILE, msgspec.json.encode(self._head.map))


def started(ray: Any, run: ClusterRun, variables: Mapping[str, str]) -> Any:
    """The head of that cluster: the one that leads already, else a new one."""
    options = {
        "name": HEAD.format(name=run.name),
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "max_restarts": -1,
        "max_concurrency": 16,
        "num_cpus": 0,
        "resources": HERE,
        "runtime_env": {"env_vars": dict(variables)},
    }
    return ray.remote(HeadActor).options(**options).remote(run, dict(variables))


async def _in_another_process(question: Question) -> ClusterPlan:
    """Placing takes all of a core for seconds, in which the head must hear who is gone."""
    task = imported().remote(answered).options(num_cpus=0, resources=HERE, max_retries=0)
    found: ClusterPlan = await asyncio.wrap_future(task.remote(question).future())
    return found


def _admin(run: ClusterRun) -> str | None:
    live = run.live_on(run.scenario.gpus[0].name, ()).live
    names = [each.name for each in run.scenario.tenants]
    found = (read_tokens(live, names, os.environ) or {}).get(ADMIN)
    return None if found is None else digest(found)
