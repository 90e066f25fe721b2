"""`migrator serve --cluster`: a head and its agents on Ray, watched from a terminal. Imported when
needed."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from migrator.cluster.fleet.cluster_run import ClusterRun, read_run
from migrator.cluster.fleet.overview import overview_text
from migrator.cluster.fleet.ray_connection import begun, connected, head_of, nodes_of
from migrator.cluster.fleet.ray_head import started
from migrator.cluster.fleet.ray_stop import end_cluster
from migrator.cluster.fleet.reports import ClusterMap
from migrator.core.errors import InputError, MigratorError
from migrator.gpu.state import state_folder

HEARD_S = 60.0
"""A head that says nothing for so long while it begins is given up."""
_LOOK_S = 0.5
_ANSWER_S = 10.0
_VARIABLES = ("MIGRATOR_DATA", "MIGRATOR_EMULATED_PACE")
"""What agents get of our environment; tokens stay on the machine that has them."""
_NOT_SHARED = (
    "--shared is not given: weights and labels of a machine die with it; give a folder or an "
    "address that every machine reaches"
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
    """Serve a cluster's scenario until Ctrl-C, or until all is served and then leave it alone."""
    folder = state_folder(state).absolute()
    run = read_run(
        scenario,
        driver=driver,
        shared=None if shared is None else store_address(shared),
        state=folder,
        began_s=time.time(),
    )
    variables = {each: os.environ[each] for each in _VARIABLES if each in os.environ}
    with connected(address) as ray:
        if shared is None and len({each.address for each in nodes_of(ray)}) > 1:
            _say(_NOT_SHARED)
        ours = run.name not in begun(ray)
        head = started(ray, run, variables)
        if not ask_head(ray, head, "serves", run, wait_s=HEARD_S):
            raise InputError(
                f"{run.name} is served there already, with another scenario, driver or store; end "
                "it first with `migrator cluster stop`, or give this one another name"
            )
        signal.signal(signal.SIGTERM, _terminated)
        try:
            found = _served(ray, head, run)
            homes = len(set(found.homes.values()))
            _say(f"serving {len(found.homes)} tenants on {homes} GPUs; requests: migrator gateway")
            if not detach:
                _watched(ray, head)
        except BaseException as error:
            _left(ray, run.name, drain=ours or isinstance(error, KeyboardInterrupt))
            raise


def store_address(given: str) -> str:
    """As every machine understands it: a folder counts from where the verb was started."""
    return given if "://" in given else str(Path(given).absolute())


def cluster_status(address: str, scenario: str | None) -> dict[str, Any]:
    """How the cluster there is."""
    with connected(address) as ray:
        told: dict[str, Any] = ask_head(ray, head_of(ray, scenario), "overview")
        return told


def status_text(told: dict[str, Any]) -> str:
    """The same for a terminal."""
    return overview_text(told)


def _left(ray: Any, name: str, *, drain: bool) -> None:
    """Ended by whoever began it or wants it so; what goes wrong here says nothing of its GPUs."""
    if not drain:
        _say(f"{name} was there before and goes on; `migrator cluster stop` ends it")
        return
    _say("draining every GPU")
    _say(end_cluster(ray, name).words)


def _served(ray: Any, head: Any, run: ClusterRun) -> ClusterMap:
    """The map once every tenant has a home."""
    wanted = {each.name for each in run.scenario.tenants}
    said: set[str] = set()
    heard_s = time.monotonic()
    while True:
        try:
            found = msgspec.json.decode(ask_head(ray, head, "map"), type=ClusterMap)
            ended, gpus = ask_head(ray, head, "ended"), ask_head(ray, head, "overview")["gpus"]
        except MigratorError:  # it may be started again, or be busy
            if time.monotonic() - heard_s > HEARD_S:
                raise
            time.sleep(_LOOK_S)
            continue
        heard_s = time.monotonic()
        if wanted <= set(found.homes):
            return found
        if ended is not None:
            raise InputError(ended)
        for words in (f"{each['gpu']}: {each['words'] or each['state']}" for each in gpus):
            if words not in said:
                said.add(words)
                _say(words)
        time.sleep(_LOOK_S)


def _watched(ray: Any, head: Any) -> None:
    """Until Ctrl-C: what changes of GPUs and tenants is told."""
    before: dict[str, str] = {}
    while True:
        with suppress(MigratorError):  # it is being started again
            told = ask_head(ray, head, "overview")
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


def _terminated(_number: int, _frame: FrameType | None) -> None:
    """As Ctrl-C: whoever ends the verb wants the GPUs drained."""
    raise KeyboardInterrupt


def ask_head(ray: Any, head: Any, method: str, *what: object, wait_s: float = _ANSWER_S) -> Any:
    """What a method of the head returns; MigratorError where it does not answer."""
    try:
        return ray.get(getattr(head, method).remote(*what), timeout=wait_s)
    except Exception as error:  # whatever Ray has for a head that is gone
        raise MigratorError(
            f"the head of the cluster does not answer ({type(error).__name__}); Ray starts it "
            "again, try in some seconds"
        ) from error


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
