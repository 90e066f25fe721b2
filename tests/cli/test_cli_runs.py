"""simulate, compare and their companions as users meet them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.gpu_cli import answered, migrator, refused

from cli.test_cli import OK, environment
from migrator.core.problem import Charge
from migrator.planning.planners import ready
from migrator.policies.registry import policies

THREE = ("migrator-once", "migrator-replanned", "oracle")
EXAMPLES = Path(__file__).parents[2] / "examples"
QUICKSTART = EXAMPLES / "quickstart.yaml"
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "examples.json").read_text("utf-8"))

SMALL = """
version: 1
window_s: 20
windows: 2
policy: static-5-2
tenants:
  - model: resnet-50
    slo_ms: 100
    arrivals: {generator: poisson, mean_rps: 900}
    retraining:
      windows:
        - {accuracy_pre: 0.5, accuracy_post: 0.9, seconds: {1: 12, 2: 7, 3: 5}}
  - model: mobilenet-v2
    slo_ms: 100
    arrivals: {generator: poisson, mean_rps: 1000}
    retraining: null
"""


SHORT = """
version: 1
window_s: 20
windows: 2
policy: equal-mps
forecaster: auto
tenants:
  - model: resnet-50
    slo_ms: 100
    arrivals: {generator: azure-bursty, mean_rps: 900}
    retraining: null
  - model: mobilenet-v2
    slo_ms: 100
    arrivals: {generator: poisson, mean_rps: 1000}
    retraining: null
"""


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    for charge in Charge:
        ready(charge)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


@pytest.fixture
def short(tmp_path: Path) -> Path:
    path = tmp_path / "short.yaml"
    path.write_text(SHORT, encoding="utf-8")
    return path


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(member) for key, member in value.items() if key != "plan_s"}
    return [without_times(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{case['file']} {case['policy']}")
def test_examples_give_what_they_gave(case: Any) -> None:
    # to a thousandth: other processors round otherwise, and a request may just miss its deadline
    output = answered(
        *("simulate", EXAMPLES / case["file"], "--policy", case["policy"]),
        *("--windows", case["windows"]),
    )
    for key, value in case["found"].items():
        assert output[key] == pytest.approx(value, rel=1e-3, abs=1e-3 * output["received"]), key


def test_several_policies_are_run_one_after_the_other(short: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    three = ("--policy", ",".join(THREE))
    done = migrator("simulate", short, *three, "--report", report)
    assert done.code == OK, done.err
    under = [f"short under {policy} (" for policy in THREE]
    assert [line.split("(")[0] + "(" for line in done.out.splitlines() if " under " in line] == (
        under
    )
    assert "resnet-50 forecast in the last window by" in done.out
    assert "short (1 seed)" in done.out
    page = report.read_text(encoding="utf-8")
    assert "forecast by" in page
    once = ("--windows", 1, "--seeds", 1, "--processes", 1)
    compared = answered("compare", short, *three, *once)
    runs = compared["runs"]
    assert [run["policy"] for run in runs] == list(THREE)
    tenants = [run["windows"][-1]["tenants"][0] for run in runs]
    forecasters = [tenant["forecast_by"] for tenant in tenants]
    assert forecasters[0] == forecasters[1] != "auto"
    assert forecasters[2] is None


def test_compare_makes_a_table_a_figure_and_json(small: Path, tmp_path: Path) -> None:
    figure = tmp_path / "compare.png"
    chosen = ("--policies", "ekya,equal-mig", "--seeds", 2)
    done = migrator("compare", small, *chosen, "--processes", 1, "--figure", figure)
    assert done.code == OK, done.err
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "±" in done.out
    alone = answered("compare", small, *chosen, "--processes", 1)
    together = answered("compare", small, *chosen, "--processes", 2)
    assert without_times(alone["runs"]) == without_times(together["runs"])
    assert {row["policy"] for row in alone["rows"]} == {"ekya", "equal-mig"}
    ekya, equal = (row["goodput_share"] for row in alone["rows"])
    assert ekya["difference"] is None
    assert set(equal["by_seed"]) == {"0", "1"}
    gaps = [equal["by_seed"][seed] - ekya["by_seed"][seed] for seed in ("0", "1")]
    assert equal["difference"]["mean"] == pytest.approx(sum(gaps) / 2)
    assert equal["difference"]["half_width"] == pytest.approx(12.7062 * abs(gaps[0] - gaps[1]) / 2)


def test_the_schema_describes_the_examples() -> None:
    schema = json.loads(migrator("schema").out)
    assert schema["properties"]["version"]["const"] == 1
    assert {"tenants", "gpu", "slot_s", "policy", "forecaster", "seed"} <= set(schema["properties"])


def test_an_example_is_the_file_of_its_name() -> None:
    assert migrator("example", "quickstart").out == QUICKSTART.read_text(encoding="utf-8")
    assert "W1 to W16" in refused("example", "w99")


def test_a_live_scenario_is_printed_for_a_model_and_its_samples() -> None:
    options = ("--model", "hf:my model", "--benchmark", "folder:texts@3")
    tenant = yaml.safe_load(migrator("example", "live", *options).out)["tenants"][0]
    assert tenant["model"] == "hf:my model"
    assert tenant["live"]["benchmark"] == "folder:texts@3"
    assert "only for `migrator example live`" in refused("example", "W1", "--model", "resnet-50")


def test_bad_input_is_one_sentence_that_helps(small: Path, tmp_path: Path) -> None:
    assert "did you mean ekya" in refused("simulate", small, "--policy", "ekyaa")
    assert "did you mean" in refused("simulate", small, "--forecaster", "last-meen")
    assert "did you mean" in refused("compare", small, "--policies", "ekya,parsi")
    assert "windows" in refused("simulate", small, "--windows", 0)
    assert "windows" in refused("simulate", small, "--windows", 100000)
    assert "seed" in refused("simulate", small, "--seed", -1)
    assert "did you mean ekya" in refused("policies", "ekyaa", "--json")
    for option in ("--policy", "--policies"):
        assert "--policy: no name given" in refused("compare", small, option, " , ")
        assert "--policy: no name given" in refused("simulate", small, option, " , ")
    changed = tmp_path / "changed.yaml"

    def with_text(old: str, new: str) -> str:
        changed.write_text(SMALL.replace(old, new), encoding="utf-8")
        return refused("simulate", changed)

    assert "version" in with_text("version: 1", "version: 2")
    assert "did you mean slo_ms?" in with_text("slo_ms", "slo_msec")
    assert "mean_rps" in with_text("mean_rps: 900", "mean_rps: 90000000")
    (tmp_path / "empty.csv").write_text("", encoding="utf-8")
    assert "empty" in with_text("{generator: poisson, mean_rps: 900}", "{trace: empty.csv}")
    (tmp_path / "bad.csv").write_text("second,count\n0,5\n1,many\n", encoding="utf-8")
    assert "line 3" in with_text("{generator: poisson, mean_rps: 900}", "{trace: bad.csv}")
    assert "report" in refused("simulate", small, "--report", tmp_path / "none" / "r.html")
    assert "no such file" in refused("simulate", tmp_path / "missing.yaml")


def test_ctrl_c_leaves_no_report(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    running = subprocess.Popen(
        [sys.executable, "-m", "migrator", "simulate", str(QUICKSTART), "--report", str(report)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment(),
        text=True,
    )
    _wait_for_cpu_time(running.pid, 2.0)  # somewhere in its planning
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert said.strip().endswith("error: interrupted")
    assert list(tmp_path.iterdir()) == []


def _wait_for_cpu_time(pid: int, seconds: float) -> None:
    """Wait until a process has computed for `seconds`, however busy the machine is."""
    until_s = time.monotonic() + 60
    spent_s = 0.0
    while spent_s < seconds:
        assert time.monotonic() < until_s, f"process {pid} computed for {spent_s} s only"
        time.sleep(0.05)
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        spent_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_policies_and_forecasters_are_listed() -> None:
    listed = answered("policies")
    assert [policy["name"] for policy in listed] == list(policies())
    assert [policy["name"] for policy in answered("policies", "ekya")] == ["ekya"]
    assert "thief" in migrator("policies", "ekya").out
    assert {"last-mean", "informer:FILE,"} <= set(migrator("forecasters").out.split())
    assert {"migrator", "oracle", "ekya", "astraea", "paris", "gpulet", "infless", "miso"} <= set(
        policies()
    )
