"""Ray, where it is installed and a cluster answers; everything else here imports without it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from migrator.agents.nodes import Node
from migrator.core.errors import InputError, MigratorError

ANSWERS_WITHIN_S = 5.0
NAMESPACE = "migrator"
HEAD = "head of {name}"
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}


def imported() -> Any:
    """The ray module; MigratorError where it is not installed."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return import_module("ray")
    except ModuleNotFoundError as error:
        raise MigratorError(
            "--cluster needs ray, which is not installed: pip install 'migrator[cluster]'"
        ) from error


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster there until the end."""
    ray = imported()
    try:
        _knock(address)
        ray.init(address=address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"--cluster: no Ray cluster answers at {address!r} ({type(error).__name__}); start one "
            "with `ray start --head` and give its address"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def head_of(ray: Any, name: str | None) -> Any:
    """The head of the cluster called so, or of the only one there is."""
    prefix = HEAD.format(name="")
    known = [
        each["name"].removeprefix(prefix)
        for each in ray.util.list_named_actors(all_namespaces=True)
        if each["namespace"] == NAMESPACE and each["name"].startswith(prefix)
    ]
    if name is None and len(known) == 1:
        name = known[0]
    if name is None or name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise InputError(
            f"--cluster: {name or 'which scenario'} is not served there (served: {there}); start "
            "it with `migrator serve SCENARIO --cluster ADDRESS`, or name it with --scenario"
        )
    return ray.get_actor(HEAD.format(name=name), namespace=NAMESPACE)


def nodes_of(ray: Any) -> list[Node]:
    """The machines that are there, in an order that does not change."""
    found = []
    for each in ray.nodes():
        if each["Alive"]:
            address = each["NodeManagerAddress"]
            names = {each["NodeID"], each.get("NodeName"), each["NodeManagerHostname"], address}
            gpus = int(each["Resources"].get("GPU", 0))
            known = frozenset(filter(None, names))
            found.append(Node(each["NodeID"], known, address, gpus))
    return sorted(found, key=lambda node: node.key)


def _knock(address: str) -> None:
    """OSError where nobody listens at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), ANSWERS_WITHIN_S).close()
