"""A head that cannot lead: whether it begins anew, and what it leaves behind. Without Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.agents import cluster_run
from support.fake_ray import FakeRay

from migrator.cluster import shared_files
from migrator.cluster.fleet import ray_head
from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.cluster.fleet.head import Head
from migrator.cluster.fleet.ray_agents import RayAgents
from migrator.cluster.fleet.ray_clusters import agent_prefix
from migrator.cluster.fleet.ray_head import HeadActor
from migrator.core.errors import InputError

Led = Callable[[FakeRay], HeadActor]


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []
    monkeypatch.setattr(ray_head, "os", SimpleNamespace(_exit=codes.append, environ={}))
    monkeypatch.setattr(ray_head, "AGAIN_S", 0.0)
    return codes


@pytest.fixture
def run(tmp_path: Path) -> ClusterRun:
    pytest.importorskip("fsspec", reason="the store is reached through fsspec")
    return cluster_run(tmp_path, ["a"], [{"name": "g1"}])


@pytest.fixture
def led(run: ClusterRun, monkeypatch: pytest.MonkeyPatch) -> Iterator[Led]:
    """A head that has ended."""
    heads: list[HeadActor] = []

    def led(ray: FakeRay) -> HeadActor:
        monkeypatch.setattr(ray_head, "import_ray", lambda: ray)
        heads.append(HeadActor(run, {}))
        heads[-1]._thread.join(60)
        assert not heads[-1]._thread.is_alive()
        return heads[-1]

    yield led
    for actor in heads:
        actor._loop.close()


def test_a_head_without_its_store_begins_anew_where_agents_serve(
    run: ClusterRun, exits: list[int], led: Led
) -> None:
    Path(run.shared).write_text("this is no folder")
    serving = FakeRay({f"{agent_prefix(run.name)}g1": None})
    head = led(serving)
    assert "cannot be used" in str(head.ended())
    assert exits == [1]


@pytest.mark.parametrize("serving", [True, False])
def test_a_store_that_hangs_keeps_no_head_from_leading_agents_that_serve(
    run: ClusterRun, exits: list[int], led: Led, monkeypatch: pytest.MonkeyPatch, serving: bool
) -> None:
    leads: list[str] = []

    async def lead(head: Head, _: object, least: int) -> None:
        assert least == 1  # above it by the agents' epochs
        leads.append(head.store_trouble)

    monkeypatch.setattr(Head, "run", lead)
    monkeypatch.setattr(shared_files, "READ_S", 0.2)
    Path(run.shared).mkdir()
    os.mkfifo(Path(run.shared) / "windows.json")
    head = led(FakeRay({f"{agent_prefix(run.name)}g1": None} if serving else {}))
    assert exits == []
    if serving:
        assert (leads, head.ended()) == (
            [f"the shared store {run.shared} does not answer within 0.2 s"],
            None,
        )
    else:
        assert "does not answer" in str(head.ended())


def test_where_nothing_is_served_yet_it_says_why_and_stays(
    run: ClusterRun, exits: list[int], led: Led
) -> None:
    Path(run.shared).write_text("this is no folder")
    head = led(FakeRay({f"{agent_prefix('another')}g1": None}))
    assert "cannot be used" in str(head.ended())
    assert exits == []
    assert head.stop() == ()  # no agent was stopped


def test_where_ray_cannot_say_who_serves_it_begins_anew(exits: list[int], led: Led) -> None:
    head = led(FakeRay({}, answers=False))
    assert "Ray is busy" in str(head.ended())
    assert exits == [1]


@pytest.mark.parametrize("serving", [True, False])
def test_agents_end_with_a_head_that_leads_no_more_only_if_they_serve_no_tenant(
    run: ClusterRun, exits: list[int], led: Led, monkeypatch: pytest.MonkeyPatch, serving: bool
) -> None:
    """Others are drained one by one by the command that ends the cluster, which must find them."""
    ended: list[int] = []

    def gone(*_: object) -> None:
        raise InputError("no GPU has room; add one")

    monkeypatch.setattr(RayAgents, "require_all", lambda _: None)
    monkeypatch.setattr(RayAgents, "end", lambda _: ended.append(1))
    monkeypatch.setattr(Head, "run", gone)
    head = led(FakeRay({f"{agent_prefix(run.name)}g1": None} if serving else {}))
    assert head.ended() == "no GPU has room; add one"
    assert head.stop() == ()
    assert (ended, exits) == (([], [1]) if serving else ([1], []))
