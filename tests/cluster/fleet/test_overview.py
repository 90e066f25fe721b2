"""The status of the cluster, read while its head goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.agent_links import FakeAgents
from support.agents import cluster_run

from migrator.cluster.fleet.head import Head
from migrator.cluster.fleet.messages import Report, TenantReport
from migrator.cluster.fleet.overview import overview
from migrator.cluster.fleet.watch import LastReport, Watch


def test_a_gpu_that_is_given_up_meanwhile_is_shown_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for from another thread than the head's."""
    head = Head(cluster_run(tmp_path, ["a", "b"], [{"name": "g1"}]), FakeAgents())
    tenants = {"a": TenantReport(ready=True, received=7)}
    head.watch.last["g1"] = LastReport(Report("g1", "n", 0, 1, "http://g1", tenants=tenants), 0.0)
    head.state.homes = {"a": "g1"}

    def and_then_it_is_gone(watch: Watch) -> dict[str, Report]:
        reports = {gpu: watch.last[gpu].report for gpu in watch.alive}
        watch.dead["g1"] = "it is gone"
        return reports

    monkeypatch.setattr(Watch, "reports", property(and_then_it_is_gone))
    status = overview(head)
    assert status["tenants"]["a"]["received"] == 7
    assert "received" not in status["tenants"]["b"]
    assert "received" not in overview(head)["tenants"]["a"]
