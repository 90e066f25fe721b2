"""The scenario of one GPU; which cluster is meant, and which actors it has on Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.agents import cluster_file
from support.fake_ray import FakeRay

from migrator.cluster.fleet.agent import GpuAgent
from migrator.cluster.fleet.cluster_run import ClusterRun, read_run
from migrator.cluster.fleet.ray_clusters import (
    agent_prefix,
    choose_cluster,
    known_clusters,
    served_clusters,
)
from migrator.cluster.fleet.ray_head import _admin
from migrator.core.errors import InputError
from migrator.workload.capacity import highest_rps

SMALL, LARGE = "A30-24GB", "A100-40GB"
MIXED = {"gpus": [{"board": SMALL, "name": "s"}, {"board": LARGE, "name": "l"}]}


def changed(folder: Path, *changes: dict[str, Any], **keys: Any) -> ClusterRun:
    """A cluster of these tenants, each with a key of its own."""
    names = [f"t{number}" for number in range(len(changes))]
    path = cluster_file(folder, names, [{"name": "g1"}], **{"cluster": MIXED, **keys})
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    data["tenants"] = [a | b for a, b in zip(data["tenants"], changes, strict=True)]
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return read_run(path, driver="emulated", shared=None, state=folder / "state", began_s=0.0)


@pytest.mark.parametrize("tenants", [({"min_gpcs": 7}, {}), ({"min_gpcs": 7},)])
def test_a_board_that_the_first_or_no_tenant_fits_begins_without_tenants(
    tmp_path: Path, tenants: tuple[dict[str, Any], ...]
) -> None:
    run = changed(tmp_path, *tenants)
    assert set(run.scenario.tenants[0].served) == {LARGE}
    for gpu, board in (("s", SMALL), ("l", LARGE)):
        live = run.live_on(gpu, ())
        assert (live.scenario.board.name, live.tenants, live.scenario.tenants) == (board, (), ())
    assert run.live.port == 0
    assert _admin(run) is None
    agent = GpuAgent(run, "s", 0, "here", "127.0.0.1")
    agent.close()
    with pytest.raises(InputError, match="has no such tenant for s"):
        run.live_on("s", ("t0",))


def test_tenants_have_the_arrivals_that_they_were_placed_by_on_every_board(tmp_path: Path) -> None:
    run = changed(tmp_path, {}, {"count": 2, "name": "like"})
    names = [tenant.name for tenant in run.scenario.tenants]
    assert names == ["t0", "like-001", "like-002"]
    everywhere = run.live_on_any().scenario.tenants
    for at, placed in enumerate(run.scenario.tenants):
        for gpu, board in (("s", SMALL), ("l", LARGE)):
            entry = json.loads(json.dumps(run.entry(placed.name)))  # as a daemon receives it
            for served in (run.read(gpu, entry).scenario.tenants[0], everywhere[at]):
                expected = placed.served[board]
                assert served.trace == expected.trace
                assert served.offset_s == expected.offset_s
            assert run.read(gpu, entry).tenants[0].service == expected.service
    traces = [tenant.trace.counts for tenant in everywhere]
    for at, trace in enumerate(traces):
        assert not any(np.array_equal(trace, other) for other in traces[:at])


def test_what_a_large_board_can_answer_is_not_refused_on_a_smaller_one(tmp_path: Path) -> None:
    """Placing may put a tenant there as a last resort; it must be able to start."""
    served = changed(tmp_path, {}).scenario.tenants[0].served
    boards = changed(tmp_path, {}).scenario.boards
    small, large = (highest_rps(served[board].service, boards[board]) for board in (SMALL, LARGE))
    arrivals = {"generator": "azure", "mean_rps": (small + large) / 2}
    run = changed(tmp_path, {"arrivals": arrivals})
    live = run.live_on("s", ("t0",))
    assert live.scenario.board.name == SMALL
    assert live.tenants[0].service == run.scenario.tenants[0].served[SMALL].service


def test_the_only_cluster_need_not_be_named_and_of_several_one_must_be() -> None:
    assert choose_cluster(["a"], None) == choose_cluster(["a", "b"], "a") == "a"
    with pytest.raises(InputError, match="name one of a, b"):
        choose_cluster(["a", "b"], None)
    with pytest.raises(InputError, match=r"c is not served there \(served: a, b\)"):
        choose_cluster(["a", "b"], "c")
    with pytest.raises(InputError, match="no scenario is served there"):
        choose_cluster([], None)


def test_a_cluster_that_has_lost_its_head_is_known_by_its_agents() -> None:
    names = ("head of shop", f"{agent_prefix('a on b')}g1", f"{agent_prefix('shop')}g1")
    ray = FakeRay(dict.fromkeys(names))
    assert served_clusters(ray) == ["shop"]
    assert known_clusters(ray) == ["a on b", "shop"]
    assert not agent_prefix("a on b").startswith(agent_prefix("a"))
