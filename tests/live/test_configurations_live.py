"""A daemon that chooses between several ways to retrain a tenant, and carries out its choice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from support.gpu_cli import migrator
from support.live_daemon import samples, scenario_file, served
from support.waiting import until

from migrator.records.store import read_records

LONG, SHORT = {"name": "long", "epochs": 16}, {"name": "short", "epochs": 4, "part": 0.75}
SLOW = {"1": {"14": 400, "98": 60}, "4": {"14": 800, "98": 120}}
"""Milliseconds: the whole board answers 33 requests per second."""


def _scenario(folder: Path) -> Path:
    """A tenant with two ways to retrain, whose load needs most of the board."""
    profile = {"latency_ms": SLOW, "training_ratio": 0.1}
    path = scenario_file(folder, "photos", window_s=20, policy="migrator", **profile)
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    (tenant,) = document["tenants"]
    tenant["arrivals"]["mean_rps"] = 24
    tenant["retraining"] = {"configurations": [LONG, SHORT]}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def test_the_configuration_that_the_plan_chooses_is_carried_out_told_and_remembered(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    with served(_scenario(tmp_path), state, "--from-first-request") as daemon:
        daemon.upload("photos", *samples(1, 200), "lesson")

        def is_estimated() -> bool:
            return 'source="estimated"' in daemon.client.get(f"{daemon.url}/metrics").text

        until(is_estimated, "the retraining is estimated")
        daemon.infer("photos", samples(0, 1)[0][0], "first")  # it begins the first window
        now = daemon.wait_for(
            lambda now: now["tenants"]["photos"]["version"] == 2, "version 2 serves"
        )
        assert now["tenants"]["photos"]["configuration"] == "short"
        # the version serves a moment before the retraining's process has ended
        until(
            lambda: "done as short" in migrator("status", MIGRATOR_STATE=str(state)).out,
            "status names the configuration of the retraining that is done",
        )
        assert daemon.stop() == 0, daemon.said()
    home = state / "live" / "small"
    records = read_records(home / "records.db")
    (row,) = (row for row in records.retrainings if row.taken_s is not None)
    assert row.configuration == "short"
    assert "as 'short'" in records.versions[-1].why
    assert row.taken_s == pytest.approx(row.planned_s, rel=0.5)
    text = (home / "models" / "photos" / "000002.json").read_text(encoding="utf-8")
    about = json.loads(text.partition("\n")[2])["about"]
    assert about["configuration"] == "short"
    past = about["past"][-1]
    assert (past["settings"]["epochs"], past["settings"]["part"]) == (4, 0.75)
    assert len(past["curve"]) == 4, "an epoch each, none of the long one"
    assert past["fraction"] < 1
