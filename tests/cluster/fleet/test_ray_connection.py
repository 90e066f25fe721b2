"""Which cluster is meant, and whose actors are whose; Ray is asked only for names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from migrator.cluster.fleet.ray_connection import NAMESPACE, agents_of, begun, served, the_only
from migrator.core.errors import InputError


def ray_with(*names: str) -> Any:
    told = [{"name": each, "namespace": NAMESPACE} for each in names]
    others = [{"name": "head of x", "namespace": "of somebody else"}]
    return SimpleNamespace(util=SimpleNamespace(list_named_actors=lambda **_: [*told, *others]))


def test_the_only_cluster_need_not_be_named_and_of_several_one_must_be() -> None:
    assert the_only(["a"], None) == the_only(["a", "b"], "a") == "a"
    with pytest.raises(InputError, match="name one of a, b"):
        the_only(["a", "b"], None)
    with pytest.raises(InputError, match=r"c is not served there \(served: a, b\)"):
        the_only(["a", "b"], "c")
    with pytest.raises(InputError, match="no scenario is served there"):
        the_only([], None)


def test_a_cluster_that_has_lost_its_head_is_known_by_its_agents() -> None:
    ray = ray_with("head of shop", f"{agents_of('a on b')}g1", f"{agents_of('shop')}g1")
    assert served(ray) == ["shop"]
    assert begun(ray) == ["a on b", "shop"]
    assert not agents_of("a on b").startswith(agents_of("a"))
