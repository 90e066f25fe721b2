"""What `serve --cluster`, `gateway` and `status --cluster` refuse, each with one sentence."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.agents import cluster_file
from support.gpu_cli import refused
from support.live_daemon import scenario_file

from migrator.cli import cluster_verbs
from migrator.cli.cluster_verbs import store_address
from migrator.cluster.fleet import ray_clusters, ray_head, stop
from migrator.cluster.fleet.cluster_run import read_run
from migrator.cluster.fleet.ray_clusters import HEAD, NAMESPACE, agent_prefix
from migrator.cluster.fleet.stop import StopResult
from migrator.core.errors import InputError


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    return str(cluster_file(tmp_path, ["a", "b"], [{"name": "g1"}, {"name": "g2"}]))


def test_a_scenario_of_many_gpus_needs_a_cluster(cluster: str) -> None:
    assert "pass --cluster ADDRESS" in refused("serve", cluster)


def test_a_scenario_of_one_gpu_is_no_cluster(tmp_path: Path) -> None:
    path = scenario_file(tmp_path, "a")
    text = refused("serve", path, "--cluster", "auto", "--state", tmp_path)
    assert "cluster: the key is missing" in text


def test_an_address_that_does_not_answer_is_named(cluster: str, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install 'migrator-gpu[cluster]'")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for arguments in (
            ("serve", cluster, "--cluster", address, "--state", str(tmp_path)),
            ("gateway", "--cluster", address, "--port", "0"),
            ("status", "--cluster", address),
            ("cluster", "stop", address, "--yes"),
            ("cluster", "drain", "g1", address, "--yes"),
            ("cluster", "undrain", "g1", address),
        ):
            text = refused(*arguments)
            assert f"no Ray cluster answers at {address!r}" in text
            assert "ray start --head" in text
            assert "ray get-auth-token --generate" in text
            assert "export RAY_AUTH_MODE=token" in text


@pytest.mark.parametrize("verb", [("stop",), ("drain", "g1")])
def test_a_verb_that_acts_asks_first(verb: tuple[str, ...]) -> None:
    assert "pass --yes" in refused("cluster", *verb, "127.0.0.1:1")


def test_a_store_is_the_same_from_wherever_it_is_looked_at(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_address("weights") == str(tmp_path / "weights")
    assert store_address("s3://bucket/weights") == "s3://bucket/weights"
    run = read_run(Path(cluster), driver="emulated", shared=None, state=tmp_path, began_s=0.0)
    assert run.shared == str(tmp_path / "cluster" / "small" / "shared")


def test_a_gateway_needs_one_map_and_one_that_is_there(tmp_path: Path) -> None:
    file = tmp_path / "map.json"
    assert "set exactly one of them" in refused("gateway", "--port", 0)
    assert "map.json is no map" in refused("gateway", "--map", file, "--port", 0)
    file.write_text("{}")
    assert "there is no map yet" in refused("gateway", "--map", file, "--port", 0)
    assert "is no address" in refused("gateway", "--map", "http://", "--port", 0)


def test_a_gateway_that_others_can_reach_needs_tokens(tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text('{"epoch": 1, "version": 1}')
    options = ("--map", tmp_path / "map.json", "--port", 0, "--host", "0.0.0.0")
    assert "no tokens are set" in refused("gateway", *options)


# Serving a cluster from a terminal: what becomes of it when that goes wrong. Without Ray.


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
