"""Which cluster is meant, and whose actors are whose; Ray is asked only for names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from migrator.cluster.fleet.ray_connection import (
    NAMESPACE,
    agent_prefix,
    choose_cluster,
    known_clusters,
    served_clusters,
)
from migrator.core.errors import InputError


def ray_with(*names: str) -> Any:
    ours = [{"name": each, "namespace": NAMESPACE} for each in names]
    others = [{"name": "head of x", "namespace": "another"}]
    return SimpleNamespace(util=SimpleNamespace(list_named_actors=lambda **_: [*ours, *others]))


def test_the_only_cluster_need_not_be_named_and_of_several_one_must_be() -> None:
    assert choose_cluster(["a"], None) == choose_cluster(["a", "b"], "a") == "a"
    with pytest.raises(InputError, match="name one of a, b"):
        choose_cluster(["a", "b"], None)
    with pytest.raises(InputError, match=r"c is not served there \(served: a, b\)"):
        choose_cluster(["a", "b"], "c")
    with pytest.raises(InputError, match="no scenario is served there"):
        choose_cluster([], None)


def test_a_cluster_that_has_lost_its_head_is_known_by_its_agents() -> None:
    ray = ray_with("head of shop", f"{agent_prefix('a on b')}g1", f"{agent_prefix('shop')}g1")
    assert served_clusters(ray) == ["shop"]
    assert known_clusters(ray) == ["a on b", "shop"]
    assert not agent_prefix("a on b").startswith(agent_prefix("a"))
