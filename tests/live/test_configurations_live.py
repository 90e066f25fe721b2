"""A daemon that chooses between several ways to retrain a tenant, and carries out its choice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.gpu_cli import migrator
from support.live_daemon import Served, samples, scenario_file, served
from support.waiting import until

from migrator.records.rows import RetrainingRecord
from migrator.records.store import read_records

WINDOW_S = 20
SAMPLES = 200
LONG, SHORT = {"name": "long", "epochs": 16}, {"name": "short", "epochs": 4, "part": 0.75}
SLOW = {"1": {"14": 400, "98": 60}, "4": {"14": 800, "98": 120}}
"""Milliseconds: the whole board answers 33 requests per second."""
RATE_RPS = 24


def _scenario(folder: Path, *configurations: dict[str, Any], training_ratio: float) -> Path:
    """A tenant with these ways to retrain, whose load needs most of the board."""
    path = scenario_file(
        folder,
        "photos",
        window_s=WINDOW_S,
        policy="migrator",
        latency_ms=SLOW,
        training_ratio=training_ratio,
    )
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    (tenant,) = document["tenants"]
    tenant["arrivals"]["mean_rps"] = RATE_RPS
    tenant["retraining"] = {"configurations": list(configurations)}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def _begin_first_window(daemon: Served) -> None:
    """Upload what the first window learns, and begin it once that is estimated."""
    daemon.upload("photos", *samples(1, SAMPLES), "lesson")

    def is_estimated() -> bool:
        return 'source="estimated"' in daemon.client.get(f"{daemon.url}/metrics").text

    until(is_estimated, "the retraining is estimated")
    daemon.infer("photos", samples(0, 1)[0][0], "first")


def _retrained(daemon: Served, version: int = 2) -> dict[str, Any]:
    now = daemon.wait_for(
        lambda now: now["tenants"]["photos"]["version"] == version, f"version {version} serves"
    )
    tenant: dict[str, Any] = now["tenants"]["photos"]
    return tenant


def _about_version(state: Path, number: int = 2) -> dict[str, Any]:
    """What a version says of the retraining that made it."""
    path = state / "live" / "small" / "models" / "photos" / f"{number:06d}.json"
    about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8").partition("\n")[2])["about"]
    return about


def _record(state: Path) -> RetrainingRecord:
    records = read_records(state / "live" / "small" / "records.db")
    (row,) = (row for row in records.retrainings if row.taken_s is not None)
    assert f"as '{row.configuration}'" in records.versions[-1].why
    return row


def test_the_configuration_that_the_plan_chooses_is_carried_out_told_and_remembered(
    tmp_path: Path,
) -> None:
    path, state = _scenario(tmp_path, LONG, SHORT, training_ratio=0.1), tmp_path / "state"
    with served(path, state, "--from-first-request") as daemon:
        _begin_first_window(daemon)
        assert _retrained(daemon)["configuration"] == "short"
        # the version serves a moment before the retraining's process has ended
        until(
            lambda: "done as short" in migrator("status", MIGRATOR_STATE=str(state)).out,
            "status names the configuration of the retraining that is done",
        )
        assert daemon.stop() == 0, daemon.said()
    row = _record(state)
    assert row.configuration == "short"
    assert row.taken_s == pytest.approx(row.planned_s, rel=0.5)
    before = _about_version(state)
    assert before["configuration"] == "short"
    past = before["past"][-1]
    assert (past["settings"]["epochs"], past["settings"]["part"]) == (4, 0.75)
    assert len(past["curve"]) == 4, "an epoch each, none of the long one"
    assert past["fraction"] < 1
