"""Retrainings that take longer than planned do not cost the tenant behind them its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.forecast.selection import forecaster
from migrator.policies.registry import policy
from migrator.simulation.durations import ProfileDurations
from migrator.simulation.run import run
from migrator.workload.file import read_scenario

SCENARIO = """
version: 1
gpu: H200-141GB
window_s: 60
windows: 1
tenants:
  - {name: pictures, model: convnext-b, slo_ms: 100, batch: 4,
     arrivals: {generator: alibaba, mean_rps: 800},
     retraining: {windows: [
       {accuracy_pre: 0.5, accuracy_post: 0.9, seconds: {1: 26, 2: 17, 3: 13}}]}}
  - {name: objects, model: convnext-b, slo_ms: 100, batch: 4,
     arrivals: {generator: azure, mean_rps: 1000},
     retraining: {windows: [
       {accuracy_pre: 0.45, accuracy_post: 0.85, seconds: {1: 21, 2: 15, 3: 11}}]}}
"""


def test_a_retraining_planned_behind_one_that_is_late_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where they took 1.3 to 1.4 times their plan."""
    path = tmp_path / "late.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    ended: dict[float, list[float]] = {}
    for factor in (1.0, 1.4):
        monkeypatch.setattr(ProfileDurations, "slower", lambda *_, factor=factor: factor)
        outcome = run(read_scenario(path), policy("migrator"), forecaster("last-mean"))
        times_s = [tenant.retrained_s for tenant in outcome.windows[0].tenants]
        ended[factor] = sorted(at_s for at_s in times_s if at_s is not None)
    assert len(ended[1.0]) == len(ended[1.4]) == 2
    # one after the other, and each as much later as it was slower
    assert ended[1.4][0] < ended[1.4][1]
    assert ended[1.4][1] > 1.25 * ended[1.0][1]
