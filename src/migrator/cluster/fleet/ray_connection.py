"""Ray, where it is installed and a cluster answers; everything else here imports without it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import quote, unquote

from migrator.cluster.fleet.nodes import Node
from migrator.cluster.placement.workers import is_listening
from migrator.core.errors import InputError

NAMESPACE = "migrator"
HEAD = "head of {name}"
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}


def imported() -> Any:
    """The ray module; InputError where it is not installed."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return import_module("ray")
    except ModuleNotFoundError as error:
        raise InputError(
            "--cluster needs ray, which is not installed: pip install 'migrator[cluster]'"
        ) from error


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster there until the end."""
    ray = imported()
    try:
        listens = is_listening(address)
    except OSError as error:
        raise _nobody_at(address, error) from error
    try:
        ray.init(address=address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False)
    except (OSError, ValueError) as error:
        if not listens:
            raise _nobody_at(address, error) from error
        raise InputError(
            f"--cluster: somebody listens at {address!r}, but no Ray cluster that can be joined "
            f"({type(error).__name__}); run this on a machine that is part of it, with "
            "RAY_AUTH_MODE=token where it asks for one"
        ) from error
    except (
        RuntimeError,
        ray.exceptions.RayError,
    ) as error:  # as where Ray or Python there are of other versions
        raise InputError(
            f"--cluster: the Ray cluster at {address!r} cannot be joined ({_first_line(error)}); "
            "have the same Ray and Python on every machine, and its token where it asks for one"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def head_of(ray: Any, name: str | None) -> Any:
    """The head of the cluster called so, or of the only one there is."""
    found = the_only(served(ray), name)
    return ray.get_actor(HEAD.format(name=found), namespace=NAMESPACE)


def served(ray: Any) -> list[str]:
    """The clusters that have a head there."""
    prefix = HEAD.format(name="")
    return sorted(each.removeprefix(prefix) for each in actors(ray) if each.startswith(prefix))


def begun(ray: Any) -> list[str]:
    """The clusters of which anything is left there: a head, or agents that have lost it."""
    first, _, then = agents_of("\0").partition(quote("\0", ""))
    agents = [each for each in actors(ray) if each.startswith(first)]
    names = {unquote(each.removeprefix(first).partition(then)[0]) for each in agents}
    return sorted(names.union(served(ray)))


def the_only(known: Sequence[str], name: str | None) -> str:
    """The cluster called so, or the only one; InputError where it is not there, or not clear."""
    if name is None and len(known) == 1:
        return known[0]
    if name is not None and name in known:
        return name
    if name is None and known:
        raise InputError(f"--scenario: several are served there; name one of {', '.join(known)}")
    what, there = name or "no scenario", ", ".join(known) or "none"
    raise InputError(
        f"--cluster: {what} is {'not ' if name else ''}served there (served: {there}); start it "
        "with `migrator serve SCENARIO --cluster ADDRESS`"
    )


def actors(ray: Any) -> list[str]:
    """The names of all actors of ours."""
    found = ray.util.list_named_actors(all_namespaces=True)
    return [each["name"] for each in found if each["namespace"] == NAMESPACE]


def agents_of(name: str) -> str:
    """What the names of a cluster's agents begin with; no other cluster's begin so."""
    return f"agent of {quote(name, '')} on "


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


def has_agents(ray: Any, name: str) -> bool:
    """Whether somebody has begun to serve that cluster."""
    return any(each.startswith(agents_of(name)) for each in actors(ray))


def _nobody_at(address: str, error: Exception) -> InputError:
    return InputError(
        f"--cluster: no Ray cluster answers at {address!r} ({type(error).__name__}); start one "
        "with `ray start --head` and give its address"
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:")[:200] if lines else type(error).__name__
