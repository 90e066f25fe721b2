"""`migrator cluster plan`, and `simulate` on a cluster, as users meet them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from support.gpu_cli import answered, migrator, refused

from migrator.cli.cluster_verbs import ray_address

SMALL = """
version: 1
window_s: 10
windows: 1
policy: equal-mig
cluster:
  gpus: [{name: gpu, board: A30-24GB, count: 2}]
tenants:
  - name: shop
    count: 2
    model: resnet-50
    slo_ms: 100
    arrivals: {generator: azure, mean_rps: 400}
  - name: mail
    model: bert-base
    slo_ms: 100
    arrivals: {generator: azure, mean_rps: 300}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def answer(*arguments: object) -> Any:
    return answered(*arguments, "--jobs", 1)


def test_a_plan_has_tenants_gpus_and_the_upper_bound(small: Path) -> None:
    text = migrator("cluster", "plan", small, "--jobs", 1).out
    assert "3 tenants on 2 GPUs" in text
    assert "no placement has more than" in text
    placed = answer("cluster", "plan", small)
    assert set(placed["placement"]) == {"shop-001", "shop-002", "mail"}
    assert placed["goodput_rps"] <= placed["upper_bound_rps"]
    assert sum(gpu["goodput_rps"] for gpu in placed["gpus"]) == pytest.approx(placed["goodput_rps"])


def test_a_rerun_from_the_answer_moves_no_tenant(small: Path, tmp_path: Path) -> None:
    first = answer("cluster", "plan", small)
    (tmp_path / "now.json").write_text(json.dumps(first))
    again = answer("cluster", "plan", small, "--current", tmp_path / "now.json")
    assert again["placement"] == first["placement"]
    assert again["moved"] == []
    assert "no such file" in refused("cluster", "plan", small, "--current", tmp_path / "none.json")


def test_tenants_without_room_are_named_and_the_exit_code_is_2(tmp_path: Path) -> None:
    path = tmp_path / "full.yaml"
    path.write_text(SMALL.replace("count: 2\n    model", "count: 9\n    model"), encoding="utf-8")
    done = migrator("cluster", "plan", path, "--jobs", 1, "--json")
    assert done.code == 2
    assert len(json.loads(done.out)["unplaced"]) == 2
    assert "no GPU has room for" in done.err
    text = migrator("cluster", "plan", path, "--jobs", 1).out
    assert "add a GPU" in text
    assert "no GPU has room for" in refused("simulate", path, "--jobs", 1)


def test_a_cluster_is_simulated_gpu_by_gpu(small: Path) -> None:
    simulated = answer("simulate", small)
    assert simulated["received"] == sum(gpu["received"] for gpu in simulated["gpus"])
    assert {gpu["gpu"] for gpu in simulated["gpus"]} <= {"gpu-1", "gpu-2"}
    assert simulated["policy"] == "equal-mig"
    text = migrator("simulate", small, "--jobs", 1, "--policy", "equal-mig,unpartitioned").out
    assert "under equal-mig" in text
    assert "under unpartitioned" in text
    assert "small (1 seed)" in text


def test_what_a_cluster_cannot_have_is_refused(small: Path, tmp_path: Path) -> None:
    assert "use `migrator simulate " in refused("compare", small)
    assert "--report" in refused("simulate", small, "--report", tmp_path / "run.html")
    assert "--windows" in refused("simulate", small, "--windows", 0)
    assert "--seed" in refused("simulate", small, "--seed", -1)
    assert "did you mean" in refused("simulate", small, "--policy", "equal-mag")
    plain = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
    assert "cluster: the key is missing" in refused("cluster", "plan", plain)
    assert "--jobs" in refused("simulate", plain, "--jobs", 2)
    assert "--ray" in refused("simulate", plain, "--ray", "auto")


def test_ray_is_used_where_it_is_asked_for_or_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    installed = importlib.util.find_spec("ray") is not None
    assert ray_address(None) == ("10.0.0.1:6379" if installed else None)
    assert ray_address("auto") == "auto"
    monkeypatch.delenv("RAY_ADDRESS")
    assert ray_address(None) is None
