"""`migrator serve --cluster`: a head and its agents on Ray, watched from a terminal. Imported when
needed."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from migrator.agents.cluster_run import ClusterRun, read_run
from migrator.agents.overview import overview_text
from migrator.agents.ray_connection import connected, head_of
from migrator.agents.ray_head import started
from migrator.agents.reports import ClusterMap
from migrator.core.errors import InputError, MigratorError
from migrator.gpu.state import state_folder

STOP_S = 60.0
_LOOK_S = 0.5
_ANSWER_S = 10.0
_VARIABLES = ("MIGRATOR_DATA", "MIGRATOR_EMULATED_PACE")
"""What agents get of our environment; tokens stay on the machine that has them."""


def serve_cluster(
    scenario: Path,
    address: str,
    *,
    driver: str,
    shared: str | None,
    state: Path | None,
    detach: bool,
) -> None:
    """Serve a cluster's scenario until Ctrl-C, or until all is served and then leave it alone."""
    folder = state_folder(state).absolute()
    store = shared or str(folder / "cluster" / scenario.stem / "shared")
    run = read_run(scenario, driver=driver, shared=store, state=folder, began_s=time.time())
    variables = {each: os.environ[each] for each in _VARIABLES if each in os.environ}
    with connected(address) as ray:
        head = started(ray, run, variables)
        if not _asked(ray, head, "serves", run):
            raise InputError(
                f"{run.name} is served there already, with another scenario, driver or store; end "
                "that one first, or give this one another name"
            )
        try:
            found = _served(ray, head, run)
            homes = len(set(found.homes.values()))
            _say(f"serving {len(found.homes)} tenants on {homes} GPUs; requests: migrator gateway")
            if not detach:
                _watched(ray, head)
        except BaseException:
            _stopped(ray, head)
            raise


def cluster_status(address: str, scenario: str | None) -> dict[str, Any]:
    """How the cluster there is."""
    with connected(address) as ray:
        told: dict[str, Any] = _asked(ray, head_of(ray, scenario), "overview")
        return told


def status_text(told: dict[str, Any]) -> str:
    """The same for a terminal."""
    return overview_text(told)


def _served(ray: Any, head: Any, run: ClusterRun) -> ClusterMap:
    """The map once every tenant has a home."""
    wanted = {each.name for each in run.scenario.tenants}
    said: set[str] = set()
    while True:
        found = msgspec.json.decode(_asked(ray, head, "map"), type=ClusterMap)
        if wanted <= set(found.homes):
            return found
        ended = _asked(ray, head, "ended")
        if ended is not None:
            raise InputError(ended)
        for gpu in _asked(ray, head, "overview")["gpus"]:
            words = f"{gpu['gpu']}: {gpu['words'] or gpu['state']}"
            if words not in said:
                said.add(words)
                _say(words)
        time.sleep(_LOOK_S)


def _watched(ray: Any, head: Any) -> None:
    """Until Ctrl-C: what changes of GPUs and tenants is told."""
    before: dict[str, str] = {}
    while True:
        with suppress(MigratorError):  # it is being started again
            told = _asked(ray, head, "overview")
            now = {each["gpu"]: f"{each['state']} {each['words']}".strip() for each in told["gpus"]}
            now |= {
                name: f"on {each['gpu']}" if each["state"] == "served" else each["words"]
                for name, each in told["tenants"].items()
            }
            for name, words in now.items():
                if before and before.get(name) != words:
                    _say(f"{name}: {words}")
            before = now
        time.sleep(_LOOK_S)


def _stopped(ray: Any, head: Any) -> None:
    _say("draining every GPU")
    with suppress(Exception):  # whatever Ray has for a head that is gone
        ray.get(head.stop.remote(), timeout=STOP_S)
    ray.kill(head)


def _asked(ray: Any, head: Any, method: str, *what: object) -> Any:
    try:
        return ray.get(getattr(head, method).remote(*what), timeout=_ANSWER_S)
    except Exception as error:  # whatever Ray has for a head that is gone
        raise MigratorError(
            f"the head of the cluster does not answer ({type(error).__name__}); Ray starts it "
            "again, try in some seconds"
        ) from error


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
