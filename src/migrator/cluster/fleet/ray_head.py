"""The head as a Ray actor that Ray starts again when it dies; there is one of its name."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.cluster.fleet.daemon_process import restore_priority
from migrator.cluster.fleet.head import Head
from migrator.cluster.fleet.map_source import plain_overview
from migrator.cluster.fleet.overview import overview
from migrator.cluster.fleet.placer import Question, answered
from migrator.cluster.fleet.ray_agents import RayAgents
from migrator.cluster.fleet.ray_connection import HEAD, NAMESPACE, has_agents, imported
from migrator.cluster.fleet.reports import ClusterMap
from migrator.core.cluster import ClusterPlan
from migrator.core.errors import InputError, MigratorError
from migrator.live.shared_files import StoreHangsError
from migrator.live.shared_store import SharedStore
from migrator.serve.tokens import digest
from migrator.workload.live import ADMIN
from migrator.workload.tokens import read_tokens

HERE = {"node:__internal_head__": 0.001}
"""Where Ray's own head is: nothing outlives that, and all else may die without it."""
MAP_FILE = "map.json"
MOVE_S = 300.0
AGAIN_S = 1.0
"""A head that failed begins anew so much later."""

_log = logging.getLogger(__name__)


class HeadActor:
    """Leads in a thread of its own; its methods answer at once."""

    def __init__(self, run: ClusterRun, variables: Mapping[str, str]) -> None:
        logging.basicConfig(level=logging.INFO)
        restore_priority()
        self._run, self._variables = run, variables
        self._head: Head | None = None
        self._links: RayAgents | None = None
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ended: str | None = None
        self._stopping = False
        self._began_before: bool | None = None
        """Whether agents were there before it; None: nobody could say yet."""
        self._silent: tuple[str, ...] | None = None
        """GPUs that did not say that they were stopped; None: they were not told to."""
        self._thread = threading.Thread(target=self._lead, name="head", daemon=True)
        self._thread.start()

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def map(self) -> bytes:
        """Who lives where, as JSON."""
        return msgspec.json.encode(ClusterMap() if self._head is None else self._head.known.map)

    def overview(self) -> dict[str, Any]:
        """Everything that people want to know of the cluster."""
        if self._head is None:
            return plain_overview(ClusterMap()) | {"scenario": self._run.name, "ended": self._ended}
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
        if self._head is None:
            raise MigratorError("the head has not begun to lead; try again in some seconds")
        doing = asyncio.run_coroutine_threadsafe(self._head.move(tenant, gpu), self._loop)
        return doing.result(MOVE_S)

    def drain(self, gpu: str, drained: bool) -> str:
        """Begin to move every tenant off that GPU, or let tenants come to it again."""
        if self._head is None:
            raise MigratorError("the head has not begun to lead; try again in some seconds")
        doing = asyncio.run_coroutine_threadsafe(self._head.drain(gpu, drained), self._loop)
        return doing.result(MOVE_S)

    def stop(self) -> tuple[str, ...]:
        """Drain and end every daemon and agent; GPUs of which nobody said that it was done.

        One that leads no more leaves agents that serve to whoever ends the cluster.
        """
        self._stopping = True
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._links is not None and (self._silent is not None or not self._may_serve):
            self._links.end()
        return self._silent or ()

    def _lead(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._led())
        except InputError as error:
            self._ended = str(error)
            _log.error("%s", error)
            self._begin_anew()
        except Exception as error:
            self._ended = f"{type(error).__name__}: {error}; see the head's log"
            _log.exception("the head leads no more")
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Ray starts it again, and it asks the agents; of two heads Ray starts the one it means.

        Not where nothing was served yet: somebody waits to hear why.
        """
        if self._may_serve and not self._stopping:
            time.sleep(AGAIN_S)
            os._exit(1)

    @property
    def _may_serve(self) -> bool:
        """Whether somebody may be served, who needs a head; so, too, where Ray could not say."""
        leads = self._head is not None and bool(self._head.known.homes)
        return leads or self._began_before is not False

    async def _led(self) -> None:
        ray = imported()
        # first of all: whatever goes wrong from here on, those who are served need a head
        self._began_before = has_agents(ray, self._run.name)
        store = SharedStore(self._run.shared, "head")
        published, run, least, trouble = Published(store), self._run, 1, ""
        try:
            since_s = store.windows_since_s(run.began_s, run.scenario.window_s)
            run, least = replace(run, began_s=since_s), 1 + published.epoch
        except StoreHangsError as error:
            if not self._began_before:
                raise
            # agents know both: they were told when windows began, and the epoch that led them
            trouble = str(error)
        self._links = RayAgents(ray, run, self._variables)
        if not self._began_before:  # else it serves already, perhaps with a machine less
            self._links.require_all()
        head = Head(run, self._links, publish=published.write, aside=_in_another_process)
        head.known.map = ClusterMap(admin=_admin(run))
        head.store_trouble = trouble
        self._head = head
        await head.run(self._stop, least)
        self._silent = await head.stop_all()


class Published:
    """The map in the shared store, for gateways without Ray; a newer one is never replaced."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store

    @property
    def epoch(self) -> int:
        """Of the last head that wrote one: gateways may still hold it."""
        return self._known().epoch

    def write(self, found: ClusterMap) -> None:
        """It is there, unless a newer head has written."""
        if self._known().epoch <= found.epoch:
            self._store.write(MAP_FILE, msgspec.json.encode(found))

    def _known(self) -> ClusterMap:
        content = self._store.read(MAP_FILE)
        try:
            return msgspec.json.decode(content or b"{}", type=ClusterMap)
        except msgspec.DecodeError:
            return ClusterMap()


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
    names = [each.name for each in run.scenario.tenants]
    found = (read_tokens(run.live, names, os.environ) or {}).get(ADMIN)
    return None if found is None else digest(found)
