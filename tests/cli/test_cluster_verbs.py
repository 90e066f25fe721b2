"""`migrator cluster plan`, and `simulate` on a cluster, as users meet them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from support.gpu_cli import migrator

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

ALONE = """
version: 1
window_s: 10
windows: 1
gpu: A30-24GB
tenants:
  - {name: mail, model: bert-base, slo_ms: 100, arrivals: {generator: azure, mean_rps: 300}}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def answer(*arguments: object) -> Any:
    done = migrator(*arguments, "--json", "--jobs", 1)
    assert done.code == 0, done.err
    return done.json


def refused(*arguments: object) -> str:
    done = migrator(*arguments)
    assert done.code == 2, done.err
    return done.refusal


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


def test_weights_and_floors_count_in_a_placement_and_are_reported(small: Path) -> None:
    heavy = SMALL.replace("count: 2\n    model", "count: 2\n    floor: 0.9\n    model")
    small.write_text(heavy.replace("name: mail", "name: mail\n    weight: 3"), encoding="utf-8")
    text = migrator("cluster", "plan", small, "--jobs", 1).out
    assert "with weights and floors counted, no placement is better by more than" in text
    simulated = answer("simulate", small)
    placed = simulated["plan"]
    assert placed["goodput_rps"] < placed["value_rps"] <= placed["upper_bound_rps"]
    assert placed["short_rps"] == pytest.approx(sum(gpu["short_rps"] for gpu in placed["gpus"]))
    assert simulated["floors"] == {"shop-001": 0.9, "shop-002": 0.9}
    assert simulated["weights"] == {"mail": 3.0}
    assert simulated["weighted_goodput"] > simulated["goodput"]


def test_the_forecaster_of_the_run_is_used_for_the_placement_too(small: Path) -> None:
    assert "did you mean" in refused("simulate", small, "--jobs", 1, "--forecaster", "last-meen")
    assert answer("simulate", small, "--forecaster", "ewma")["forecaster"] == "ewma"


def compared(*arguments: object) -> Any:
    done = migrator("compare", *arguments, "--processes", 1, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_policies_are_compared_on_a_cluster(small: Path) -> None:
    chosen = ("--policies", "equal-mig,unpartitioned", "--seeds", 2)
    comparison = compared(small, *chosen)
    assert [row["policy"] for row in comparison["rows"]] == ["equal-mig", "unpartitioned"]
    assert {row["seeds"] for row in comparison["rows"]} == {2}
    alone = [answer("simulate", small, "--seed", seed)["goodput_share"] for seed in (0, 1)]
    assert comparison["rows"][0]["goodput_share"]["mean"] == pytest.approx(sum(alone) / 2)
    runs = comparison["runs"]
    assert [(run["policy"], run["seed"]) for run in runs] == [
        (policy, seed) for seed in (0, 1) for policy in ("equal-mig", "unpartitioned")
    ]
    assert runs[0]["plan"]["placement"] == runs[1]["plan"]["placement"]


def test_a_cluster_is_compared_beside_one_gpu(small: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.yaml"
    alone.write_text(ALONE, encoding="utf-8")
    options = ("--policies", "equal-mig", "--seeds", 1)
    for paths in ((small, alone), (alone, small)):
        rows = compared(*paths, *options)["rows"]
        assert [row["scenario"] for row in rows] == [*(p.stem for p in paths), "all scenarios"]
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "small.yaml"
    twin.write_text(SMALL, encoding="utf-8")
    rows = compared(small, twin, *options)["rows"]
    assert [row["scenario"] for row in rows][:2] == [str(small), str(twin)]


def test_what_a_comparison_of_a_cluster_cannot_have_is_refused(small: Path, tmp_path: Path) -> None:
    assert "not supported for cluster" in refused(
        "compare", small, "--records", tmp_path / "records"
    )
    assert not (tmp_path / "records").exists()
    assert "--windows" in refused("compare", small, "--windows", 0)
    assert "did you mean" in refused("compare", small, "--forecaster", "last-meen")
    plain = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
    assert "--ray" in refused("compare", plain, "--ray", "auto")
    small.write_text(SMALL.replace("count: 2\n    model", "count: 9\n    model"), encoding="utf-8")
    assert "no GPU has room for" in refused("compare", small, "--processes", 1)


def test_what_a_cluster_cannot_have_is_refused(small: Path, tmp_path: Path) -> None:
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
