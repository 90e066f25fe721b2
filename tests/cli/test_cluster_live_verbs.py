"""What `serve --cluster`, `gateway` and `status --cluster` refuse, each with one sentence."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from support.agents import cluster_file
from support.gpu_cli import refused
from support.live_daemon import scenario_file

from migrator.cli.cluster_verbs import store_address
from migrator.cluster.fleet.cluster_run import read_run


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
