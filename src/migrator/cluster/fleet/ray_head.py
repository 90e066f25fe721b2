"""The head as a Ray actor, restarted by Ray when it dies; its name is unique.

Also what others do with it: start it, ask it, stop the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from migrator.cluster.fleet.cluster_map import ClusterMap
from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.cluster.fleet.gpu_daemon import restore_priority
from migrator.cluster.fleet.head import Head
from migrator.cluster.fleet.map_source import plain_overview
from migrator.cluster.fleet.overview import overview
from migrator.cluster.fleet.placer import PlacementRequest, compute_placement
from migrator.cluster.fleet.ray_agents import RayAgents
from migrator.cluster.fleet.ray_clusters import HEAD, NAMESPACE, connect, find_head, has_agents
from migrator.cluster.scenario import ClusterPlan
from migrator.cluster.shared_files import StoreHangsError
from migrator.cluster.shared_store import SharedStore
from migrator.core.errors import InputError, MigratorError
from migrator.io.ray_cluster import import_ray
from migrator.serving.http.access import digest
from migrator.workload.live import ADMIN

HERE = {"node:__internal_head__": 0.001}
"""Pins actors and tasks to Ray's head node, the only node that the cluster cannot lose."""
MAP_FILE = "map.json"
MOVE_S = 300.0
AGAIN_S = 1.0
"""Seconds before a failed head restarts."""
ASK_S = 10.0
"""Seconds in which a head answers a request."""
_log = logging.getLogger(__name__)


class HeadActor:
    """Runs the head in a separate thread, so that the actor responds at any time."""

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
        """Whether agents existed before this head; None: not known yet."""
        self._silent: tuple[str, ...] | None = None
        """GPUs that did not confirm the stop; None: no stop was ordered."""
        self._thread = threading.Thread(target=self._lead, name="head", daemon=True)
        self._thread.start()

    def pid(self) -> int:
        return os.getpid()

    def map(self) -> bytes:
        return msgspec.json.encode(ClusterMap() if self._head is None else self._head.state.map)

    def overview(self) -> dict[str, Any]:
        if self._head is None:
            return plain_overview(ClusterMap()) | {"scenario": self._run.name, "ended": self._ended}
        return overview(self._head, self._ended)

    def ended(self) -> str | None:
        """Why the head has ended; None: it is running."""
        return self._ended

    def serves(self, run: ClusterRun) -> bool:
        """Whether this head controls that cluster run."""
        keys = ("data", "driver", "folder", "shared")
        return all(getattr(run, key) == getattr(self._run, key) for key in keys)

    def move(self, tenant: str, gpu: str) -> str:
        return self._run_in_head(lambda head: head.move(tenant, gpu))

    def drain(self, gpu: str, drained: bool) -> str:
        """Start to move every tenant off the GPU, or allow placements on it again."""
        return self._run_in_head(lambda head: head.drain(gpu, drained))

    def _run_in_head(self, call: Callable[[Head], Coroutine[Any, Any, str]]) -> str:
        if self._head is None:
            raise MigratorError("the head has not begun to lead; try again in some seconds")
        return asyncio.run_coroutine_threadsafe(call(self._head), self._loop).result(MOVE_S)

    def stop(self) -> tuple[str, ...]:
        """Drain and stop every daemon and agent; return the GPUs that did not confirm it.

        A head that has ended leaves serving agents to `stop_cluster`.
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
        """Exit, so that Ray restarts the head, which then collects the agents' reports.

        If there are two heads, Ray restarts only the current one. Do not exit if no tenant was
        served yet, because the caller waits for the error.
        """
        if self._may_serve and not self._stopping:
            time.sleep(AGAIN_S)
            os._exit(1)

    @property
    def _may_serve(self) -> bool:
        """Whether tenants may be served, which need a head; also true if Ray did not respond."""
        leads = self._head is not None and bool(self._head.state.homes)
        return leads or self._began_before is not False

    async def _led(self) -> None:
        ray = import_ray()
        # first: tenants that are served need a head, whatever fails below
        self._began_before = has_agents(ray, self._run.name)
        store = SharedStore(self._run.shared, "head")
        run, least, trouble = self._run, 1, ""
        try:
            since_s = store.windows_since_s(run.began_s, run.scenario.window_s)
            run, least = replace(run, began_s=since_s), 1 + published_map(store).epoch
        except StoreHangsError as error:
            if not self._began_before:
                raise
            # agents know both: the start of the windows, and the epoch of the last head
            trouble = str(error)
        self._links = RayAgents(ray, run, self._variables)
        if not self._began_before:  # else it serves already, perhaps with one machine less
            self._links.require_all()
        head = Head(
            run,
            self._links,
            publish=partial(publish_map, store),
            run_placement=PlacementProcess().place,
        )
        head.state.map = ClusterMap(admin=_admin(run))
        head.store_trouble = trouble
        self._head = head
        await head.run(self._stop, least)
        self._silent = await head.stop_all()


def published_map(store: SharedStore) -> ClusterMap:
    """The last map in the shared store, which gateways may still hold."""
    try:
        return msgspec.json.decode(store.files.read(MAP_FILE) or b"{}", type=ClusterMap)
    except msgspec.DecodeError:
        return ClusterMap()


def publish_map(store: SharedStore, newest: ClusterMap) -> None:
    """Write the map for gateways without Ray, unless a newer head has written one."""
    if published_map(store).epoch <= newest.epoch:
        store.files.write(MAP_FILE, msgspec.json.encode(newest))


def start_head(ray: Any, run: ClusterRun, variables: Mapping[str, str]) -> Any:
    """Return the head of that cluster; start one if there is none."""
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


def ask_head(ray: Any, head: Any, method: str, *arguments: object, wait_s: float = ASK_S) -> Any:
    """Call a method of the head; MigratorError if it does not answer."""
    try:
        return ray.get(getattr(head, method).remote(*arguments), timeout=wait_s)
    except Exception as error:  # Ray has many exceptions for a missing head
        raise no_answer(error) from error


def no_answer(error: Exception) -> MigratorError:
    """The error for a head that does not answer."""
    return MigratorError(
        f"the head of the cluster does not answer ({type(error).__name__}); Ray restarts it, try "
        "again in a few seconds"
    )


def read_overview(address: str, scenario: str | None) -> dict[str, Any]:
    """The state of a cluster as its head reports it."""
    with connect(address) as ray:
        overview: dict[str, Any] = ask_head(ray, find_head(ray, scenario), "overview")
        return overview


class PlacementProcess:
    """Computes placements in a Ray actor, one after the other: each uses a core for seconds, and
    the head must keep getting reports.

    The process stays, with the planner loaded. Ray tasks would run in a new process each time once
    the program that started the head has ended (observed).
    """

    def __init__(self) -> None:
        self._actor: Any = None

    async def place(self, request: PlacementRequest) -> ClusterPlan:
        """The best placement. If the process is killed, another one computes it."""
        if self._actor is None:
            options = {"num_cpus": 0, "resources": HERE, "max_restarts": -1, "max_task_retries": 1}
            self._actor = import_ray().remote(_PlacementActor).options(**options).remote()
        plan: ClusterPlan = await asyncio.wrap_future(self._actor.place.remote(request).future())
        return plan


class _PlacementActor:
    def place(self, request: PlacementRequest) -> ClusterPlan:
        return compute_placement(request)


def _admin(run: ClusterRun) -> str | None:
    token = run.tokens().get(ADMIN)
    return None if token is None else digest(token)
