"""`migrator serve --cluster`: start a head and its agents on Ray and report their state."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from migrator.cli.app import say
from migrator.cluster.fleet.cluster_run import ClusterRun, read_run
from migrator.cluster.fleet.messages import ClusterMap
from migrator.cluster.fleet.ray_connection import connect, find_head, known_clusters, list_nodes
from migrator.cluster.fleet.ray_head import start_head, stop_cluster
from migrator.core.errors import InputError, MigratorError
from migrator.io.files import state_folder

SILENT_S = 60.0
"""Seconds to wait for a starting head that does not answer."""
_LOOK_S = 0.5
_ANSWER_S = 10.0
_VARIABLES = ("MIGRATOR_DATA", "MIGRATOR_EMULATED_PACE")
"""Environment variables passed on to agents; tokens stay on this machine."""
_NOT_SHARED = (
    "--shared is not given: weights and labels are lost with their machine; name a folder or "
    "address that every machine can reach"
)


def serve_cluster(
    scenario: Path,
    address: str,
    *,
    driver: str,
    shared: str | None,
    state: Path | None,
    detach: bool,
) -> None:
    """Serve a cluster scenario until Ctrl-C; with `detach` return once all tenants are served."""
    folder = state_folder(state).absolute()
    run = read_run(
        scenario,
        driver=driver,
        shared=None if shared is None else store_address(shared),
        state=folder,
        began_s=time.time(),
    )
    variables = {each: os.environ[each] for each in _VARIABLES if each in os.environ}
    with connect(address) as ray:
        if shared is None and len({each.address for each in list_nodes(ray)}) > 1:
            say(_NOT_SHARED)
        ours = run.name not in known_clusters(ray)
        head = start_head(ray, run, variables)
        if not ask_head(ray, head, "serves", run, wait_s=SILENT_S):
            raise InputError(
                f"{run.name} is already served there with another scenario, driver or store; stop "
                "it first with `migrator cluster stop`, or give this one another name"
            )
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            found = _wait_until_served(ray, head, run)
            homes = len(set(found.homes.values()))
            say(f"serving {len(found.homes)} tenants on {homes} GPUs; requests: migrator gateway")
            if empty := len(run.scenario.gpus) - homes:
                say(f"GPUs without tenants: {empty}; the tenants fit on the others")
            if not detach:
                _watch(ray, head)
        except BaseException as error:
            if ours or isinstance(error, KeyboardInterrupt):
                say("draining every GPU")
                stopped = stop_cluster(ray, run.name)
                say(stopped.words)
                if isinstance(error, KeyboardInterrupt) and stopped.clean:
                    return
            else:
                say(f"{run.name} keeps running as before; `migrator cluster stop` ends it")
            raise


def store_address(given: str) -> str:
    """The store's address as every machine understands it: folders become absolute paths."""
    return given if "://" in given else str(Path(given).absolute())


def read_overview(address: str, scenario: str | None) -> dict[str, Any]:
    """The state of a cluster as its head reports it."""
    with connect(address) as ray:
        overview: dict[str, Any] = ask_head(ray, find_head(ray, scenario), "overview")
        return overview


def _wait_until_served(ray: Any, head: Any, run: ClusterRun) -> ClusterMap:
    """Wait until every tenant is served. Returns the cluster map."""
    wanted = {each.name for each in run.scenario.tenants}
    said: set[str] = set()
    answered_s = time.monotonic()
    while True:
        try:
            found = msgspec.json.decode(ask_head(ray, head, "map"), type=ClusterMap)
            ended, gpus = ask_head(ray, head, "ended"), ask_head(ray, head, "overview")["gpus"]
        except MigratorError:  # the head may be restarting or busy
            if time.monotonic() - answered_s > SILENT_S:
                raise
            time.sleep(_LOOK_S)
            continue
        answered_s = time.monotonic()
        if wanted <= set(found.homes):
            return found
        if ended is not None:
            raise InputError(ended)
        for words in (f"{each['gpu']}: {each['words'] or each['state']}" for each in gpus):
            if words not in said:
                said.add(words)
                say(words)
        time.sleep(_LOOK_S)


def _watch(ray: Any, head: Any) -> None:
    """Report changes of GPUs and tenants until Ctrl-C."""
    before: dict[str, str] = {}
    while True:
        with suppress(MigratorError):  # the head is restarting
            seen = ask_head(ray, head, "overview")
            now = {each["gpu"]: f"{each['state']} {each['words']}".strip() for each in seen["gpus"]}
            now |= {
                name: f"on {each['gpu']}" if each["state"] == "served" else each["words"]
                for name, each in seen["tenants"].items()
            }
            for name, words in now.items():
                if before and before.get(name) != words:
                    say(f"{name}: {words}")
            before = now
        time.sleep(_LOOK_S)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C: drain the GPUs."""
    raise KeyboardInterrupt


def ask_head(ray: Any, head: Any, method: str, *what: object, wait_s: float = _ANSWER_S) -> Any:
    """Call a method of the head; MigratorError if it does not answer."""
    try:
        return ray.get(getattr(head, method).remote(*what), timeout=wait_s)
    except Exception as error:  # Ray has many exceptions for a missing head
        raise no_answer(error) from error


def no_answer(error: Exception) -> MigratorError:
    """The error for a head that does not answer."""
    return MigratorError(
        f"the head of the cluster does not answer ({type(error).__name__}); Ray restarts it, try "
        "again in a few seconds"
    )
