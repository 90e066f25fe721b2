"""Serving a cluster from a terminal: what becomes of it when that goes wrong. Without Ray."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.agents import cluster_file

from migrator.cli import cluster_verbs
from migrator.cluster.fleet import ray_clusters, ray_head, stop
from migrator.cluster.fleet.ray_clusters import HEAD, NAMESPACE, agent_prefix
from migrator.cluster.fleet.stop import StopResult
from migrator.core.errors import InputError


class Ray:
    """A cluster with these actors."""

    def __init__(self, *names: str) -> None:
        listed = [{"name": name, "namespace": NAMESPACE} for name in names]
        self.util = SimpleNamespace(list_named_actors=lambda **_: listed)

    def nodes(self) -> list[Any]:
        return []


Served = Callable[..., list[str]]


@pytest.fixture
def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Served:
    """Serves until `error` is raised; returns the clusters that were ended."""
    path = cluster_file(tmp_path, ["a"], [{"name": "g1"}])

    def serve(ray: Ray, error: BaseException) -> list[str]:
        ended: list[str] = []

        @contextmanager
        def connected(_: str) -> Iterator[Ray]:
            yield ray

        def fail(*_: object) -> None:
            raise error

        def end(_: object, name: str) -> StopResult:
            ended.append(name)
            return StopResult(True, ("g1",))

        monkeypatch.setattr(ray_clusters, "connect", connected)
        monkeypatch.setattr(ray_head, "start_head", lambda *_: "the head")
        monkeypatch.setattr(ray_head, "ask_head", lambda *_, **__: True)
        monkeypatch.setattr(cluster_verbs, "_wait_until_served", fail)
        monkeypatch.setattr(stop, "stop_cluster", end)
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        with pytest.raises(type(error)):
            cluster_verbs.serve_cluster(
                path, "auto", driver="emulated", shared=None, state=tmp_path, detach=True
            )
        stderr = capsys.readouterr().err
        assert ("keeps running" in stderr) == (not ended)
        assert ("g1 did not answer" in stderr) == bool(ended)
        return ended

    return serve


@pytest.mark.parametrize("there", [HEAD.format(name="small"), f"{agent_prefix('small')}g1"])
def test_a_cluster_that_was_there_is_not_drained_as_its_head_tells_of_trouble(
    served: Served, there: str
) -> None:
    assert served(Ray(there), InputError("the store cannot be used; give another")) == []


def test_an_interruption_ends_it_even_where_it_was_there(served: Served) -> None:
    assert served(Ray(HEAD.format(name="small")), KeyboardInterrupt()) == ["small"]
