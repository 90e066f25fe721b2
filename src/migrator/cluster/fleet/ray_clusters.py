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
    cluster = choose_cluster(served_clusters(ray), name)
    return ray.get_actor(HEAD.format(name=cluster), namespace=NAMESPACE)


def served_clusters(ray: Any) -> list[str]:
    """Clusters that have a head."""
    prefix = HEAD.format(name="")
    return sorted(name.removeprefix(prefix) for name in actor_names(ray) if name.startswith(prefix))


def known_clusters(ray: Any) -> list[str]:
    """Clusters that have a head, or agents without a head."""
    before_name, _, after_name = agent_prefix("\0").partition(quote("\0", ""))
    agents = [name for name in actor_names(ray) if name.startswith(before_name)]
    names = {unquote(agent.removeprefix(before_name).partition(after_name)[0]) for agent in agents}
    return sorted(names.union(served_clusters(ray)))


def choose_cluster(served: Sequence[str], name: str | None) -> str:
    """The cluster of that name, or the only one; InputError if it is missing or ambiguous."""
    if name is None and len(served) == 1:
        return served[0]
    if name is not None and name in served:
        return name
    if name is None and served:
        raise InputError(f"--scenario: several are served there; name one of {', '.join(served)}")
    wanted, listed = name or "no scenario", ", ".join(served) or "none"
    raise InputError(
        f"--cluster: {wanted} is {'not ' if name else ''}served there (served: {listed}); start it "
        "with `migrator serve SCENARIO --cluster ADDRESS`"
    )


def actor_names(ray: Any) -> list[str]:
    """Names of all actors in MIGRator's namespace."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in actors if actor["namespace"] == NAMESPACE]


def agent_prefix(name: str) -> str:
    """Prefix of the names of a cluster's agents, unique to that cluster."""
    return f"agent of {quote(name, '')} on "


def list_nodes(ray: Any) -> list[Node]:
    """The machines that are alive, sorted by node id."""
    nodes = []
    for entry in ray.nodes():
        if entry["Alive"]:
            address = entry["NodeManagerAddress"]
            names = {entry["NodeID"], entry.get("NodeName"), entry["NodeManagerHostname"], address}
            gpus = int(entry["Resources"].get("GPU", 0))
            node_names = frozenset(filter(None, names))
            nodes.append(Node(entry["NodeID"], node_names, address, gpus))
    return sorted(nodes, key=lambda node: node.key)


def has_agents(ray: Any, name: str) -> bool:
    """Whether the cluster has agents."""
    return any(actor.startswith(agent_prefix(name)) for actor in actor_names(ray))
