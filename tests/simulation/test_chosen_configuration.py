"""A simulated run in which a tenant has several ways to retrain."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.forecast.selection import forecaster
from migrator.policies.registry import policy
from migrator.records.outcome import RunOutcome
from migrator.simulation.run import run
from migrator.workload.file import read_scenario

SCENARIO = """
version: 1
gpu: H200-141GB
window_s: 60
windows: 2
tenants:
  - name: pictures
    model: convnext-b
    slo_ms: 100
    batch: 4
    arrivals: {generator: alibaba, mean_rps: 800}
    retraining:
      windows:
        - {accuracy_pre: 0.5, accuracy_post: 0.9, seconds: {1: 50, 2: 45, 3: 40, 4: 38, 7: 36}}
        - {accuracy_pre: 0.6, accuracy_post: 0.8, seconds: {1: 50, 2: 45, 3: 40, 4: 38, 7: 36}}
      configurations:
        - name: all
        - name: part
          windows:
            - {accuracy_post: 0.84, seconds: {1: 10, 2: 9, 3: 8, 4: 8, 7: 7}}
            - {accuracy_post: 0.78, seconds: {1: 10, 2: 9, 3: 8, 4: 8, 7: 7}}
"""


def simulated(folder: Path, name: str) -> RunOutcome:
    path = folder / "two.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return run(read_scenario(path), policy(name), forecaster("last-mean"))


def test_migrator_takes_the_one_that_pays_with_its_own_time_and_accuracy(tmp_path: Path) -> None:
    first, second = (window.tenants[0] for window in simulated(tmp_path, "migrator").windows)
    assert (first.accuracy_after, second.accuracy_after) == (0.84, 0.78)
    assert first.retrained_s is not None
    assert first.retrained_s < 25
    # the model of the short retraining loses as large a part as that of the long one
    assert second.accuracy_before == pytest.approx(0.84 * 0.6 / 0.9)


def test_a_peer_has_the_first_one(tmp_path: Path) -> None:
    (first, _) = simulated(tmp_path, "migrator-paper").windows
    assert first.tenants[0].accuracy_after == 0.9


@pytest.mark.parametrize("name", ["ekya", "ekya-by-requests"])
def test_ekya_takes_the_one_that_pays_with_its_own_time_and_accuracy(
    tmp_path: Path, name: str
) -> None:
    first, second = (window.tenants[0] for window in simulated(tmp_path, name).windows)
    assert (first.accuracy_after, second.accuracy_after) == (0.84, 0.78)
    assert first.retrained_s is not None
    assert first.retrained_s < 25


def test_a_short_one_that_gained_as_estimated_does_not_correct_estimates(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    ahead = forecaster("last-mean")
    outcome = run(read_scenario(path), policy("ekya"), ahead, record=True)
    assert outcome.records is not None
    estimated = [retraining.accuracy_estimated for retraining in outcome.records.retrainings]
    assert estimated == pytest.approx([0.84, 0.78])  # those of the short one


@pytest.mark.parametrize("name", ["migrator", "ekya", "ekya-by-requests"])
def test_one_configuration_is_what_a_scenario_without_any_has(tmp_path: Path, name: str) -> None:
    path = tmp_path / "two.yaml"
    alone, _, _ = SCENARIO.partition("      configurations:")
    outcomes = []
    for text in (alone, alone + "      configurations: [{name: all}]\n"):
        path.write_text(text, encoding="utf-8")
        outcomes.append(run(read_scenario(path), policy(name), forecaster("last-mean")))
    one, named = (
        [(window.tenants, window.slots) for window in outcome.windows] for outcome in outcomes
    )
    assert one == named
