"""Clusters of MIGRator on a Ray cluster: connecting, heads by name, actors and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from migrator.core.errors import InputError
from migrator.io.ray_cluster import connect_to_ray

NAMESPACE = "migrator"
HEAD = "head of {name}"


@dataclass(frozen=True)
class Node:
    """A machine that is alive."""

    key: str
    """Ray's node id."""
    names: frozenset[str]
    """Names that a scenario may use: node name, host name, address."""
    address: str
    gpus: int = 0
    """Number of GPUs according to Ray; 0 if there are none or Ray does not know."""


def connect(address: str) -> AbstractContextManager[Any]:
    """Connect to the Ray cluster at the address, and disconnect on exit."""
    return connect_to_ray(address, "--cluster", namespace=NAMESPACE)


def find_head(ray: Any, name: str | None) -> Any:
    """The head of the cluster of that name, or of the only cluster."""
    found = choose_cluster(served_clusters(ray), name)
    return ray.get_actor(HEAD.format(name=found), namespace=NAMESPACE)


def served_clusters(ray: Any) -> list[str]:
    """Clusters that have a head."""
    prefix = HEAD.format(name="")
    return sorted(name.removeprefix(prefix) for name in actor_names(ray) if name.startswith(prefix))


def known_clusters(ray: Any) -> list[str]:
    """Clusters that have a head, or agents without a head."""
    first, _, then = agent_prefix("\0").partition(quote("\0", ""))
    agents = [name for name in actor_names(ray) if name.startswith(first)]
    names = {unquote(agent.removeprefix(first).partition(then)[0]) for agent in agents}
    return sorted(names.union(served_clusters(ray)))


def choose_cluster(known: Sequence[str], name: str | None) -> str:
    """The cluster of that name, or the only one; InputError if it is missing or ambiguous."""
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


def actor_names(ray: Any) -> list[str]:
    """Names of all actors in MIGRator's namespace."""
    found = ray.util.list_named_actors(all_namespaces=True)
    return [each["name"] for each in found if each["namespace"] == NAMESPACE]


def agent_prefix(name: str) -> str:
    """Prefix of the names of a cluster's agents, unique to that cluster."""
    return f"agent of {quote(name, '')} on "


def list_nodes(ray: Any) -> list[Node]:
    """The machines that are alive, sorted by node id."""
    nodes = []
    for each in ray.nodes():
        if each["Alive"]:
            address = each["NodeManagerAddress"]
            names = {each["NodeID"], each.get("NodeName"), each["NodeManagerHostname"], address}
            gpus = int(each["Resources"].get("GPU", 0))
            known = frozenset(filter(None, names))
            nodes.append(Node(each["NodeID"], known, address, gpus))
    return sorted(nodes, key=lambda node: node.key)


def has_agents(ray: Any, name: str) -> bool:
    """Whether the cluster has agents."""
    return any(each.startswith(agent_prefix(name)) for each in actor_names(ray))
