"""GPUs of a scenario in the machines of a Ray cluster."""

from __future__ import annotations

import pytest

from migrator.cluster.fleet.ray_agents import locate_gpus, require_located
from migrator.cluster.fleet.ray_clusters import Node
from migrator.cluster.scenario import ClusterGpu
from migrator.core.catalogue import board
from migrator.core.errors import InputError

BOARD = board("A100-40GB")


def node(name: str, gpus: int = 0) -> Node:
    return Node(f"key of {name}", frozenset({f"key of {name}", name}), f"address of {name}", gpus)


def gpu(name: str, at: str | None = None) -> ClusterGpu:
    return ClusterGpu(name, BOARD, at)


def test_gpus_that_name_a_machine_are_there_in_their_order() -> None:
    locations = locate_gpus(
        [gpu("a", "n2"), gpu("b", "n1"), gpu("c", "n2")], [node("n1"), node("n2")], {}, real=False
    )
    assert [(n, s.node.key, s.number) for n, s in locations.items()] == [
        ("a", "key of n2", 0),
        ("b", "key of n1", 0),
        ("c", "key of n2", 1),
    ]


def test_others_are_spread_and_real_ones_only_where_gpus_are() -> None:
    gpus = [gpu("a"), gpu("b"), gpu("c")]
    spread = locate_gpus(gpus, [node("n1"), node("n2")], {}, real=False)
    assert sorted(location.node.key for location in spread.values()) == [
        "key of n1",
        "key of n1",
        "key of n2",
    ]
    real = locate_gpus(gpus, [node("n1"), node("n2", gpus=2)], {}, real=True)
    assert {location.node.key for location in real.values()} == {"key of n2"}
    assert [location.number for location in real.values()] == [0, 1]
    with pytest.raises(InputError, match="no machine has a GPU left for c"):
        require_located(gpus, real, [node("n1"), node("n2", gpus=2)])


def test_a_gpu_stays_where_it_is_until_its_machine_is_gone() -> None:
    gpus, nodes = [gpu("a"), gpu("b")], [node("n1"), node("n2")]
    held = locate_gpus(gpus, nodes, {}, real=False)
    assert locate_gpus(gpus, [*nodes, node("n3")], held, real=False) == held
    left = locate_gpus(gpus, nodes[:1], held, real=False)
    assert {location.node.key for location in left.values()} == {"key of n1"}
    named = [gpu("a", "n1"), gpu("b", "n2")]
    held = locate_gpus(named, nodes, {}, real=False)
    assert "b" not in locate_gpus(named, nodes[:1], held, real=False)


def test_a_machine_that_is_not_there_is_named_with_what_to_do() -> None:
    gpus, nodes = [gpu("a"), gpu("b", "n9")], [node("n1")]
    locations = locate_gpus(gpus, nodes, {}, real=False)
    with pytest.raises(InputError, match=r"b is in n9.*--node-name n9.*there are n1"):
        require_located(gpus, locations, nodes)
