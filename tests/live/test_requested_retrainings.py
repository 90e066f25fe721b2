"""Retrainings within a window: asked for by an operator, or by a limit of the scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from support.faults import events, said, settled, teach
from support.live_daemon import Served, samples, scenario_file, served
from typer.testing import CliRunner

from migrator.cli import app

WINDOW_S = 300
"""Longer than a test: no window but the first begins."""


def _scenario(folder: Path, policy: str = "static-4-3", of: int = 0, **limits: Any) -> Path:
    """`limits`: of the tenant of this number."""
    path = scenario_file(folder, "photos", "cameras", window_s=WINDOW_S, policy=policy)
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["tenants"][of]["live"] |= limits
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def _admin(daemon: Served, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["admin", *arguments, "--url", daemon.url, "--yes"])
    return done.exit_code, done.output


def _version(number: int, daemon: Served, tenant: str = "photos") -> dict[str, Any]:
    return daemon.wait_for(
        lambda now: (
            now["tenants"][tenant]["version"] == number
            and now["tenants"][tenant]["retraining"] == "done"
        ),
        f"version {number} serves",
    )


def test_a_tenant_is_retrained_at_once_when_an_operator_asks(tmp_path: Path) -> None:
    with served(_scenario(tmp_path, "migrator"), tmp_path / "state") as daemon:
        settled(daemon)
        code, refusal = _admin(daemon, "retrain", "photos")
        assert code == 1
        assert "photos has 0 labels that are not learned, and a retraining needs 20" in refusal
        teach(daemon, "photos", 1, 40, "first")
        code, words = _admin(daemon, "retrain", "photos")
        assert (code, "photos is retrained on 40 new labels" in words) == (0, True)
        now = _version(2, daemon)
        assert now["window"] == 0
        # those labels are learned: fewer than 20 others are too few
        teach(daemon, "photos", 1, 45, "second")
        code, words = _admin(daemon, "retrain", "photos")
        assert (code, "on 45 new labels" in words) == (0, True)
        _version(3, daemon)
        assert _admin(daemon, "retrain", "photos")[0] == 1
        status, answer = daemon.act("drain", "photos"), daemon.act("retrain", "photos")
        assert (status[0], answer[0]) == (200, 409)
        assert "photos is drained; undrain it" in answer[1]["error"]
        assert daemon.stop() == 0


def test_one_that_waits_is_asked_for_once_and_enough_new_labels_ask_for_one(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    with served(_scenario(tmp_path, of=1, retrain_after_labels=30), state) as daemon:
        settled(daemon)
        assert daemon.act("pause")[0] == 200
        teach(daemon, "photos", 1, 40, "first")
        first, *others = [daemon.act("retrain", "photos") for _ in range(20)]
        assert first[0] == 200
        assert "photos is retrained on 40 new labels" in first[1]["words"]
        for status, answer in others:
            assert (status, "was asked for already" in answer["words"]) == (200, True)
        said(state, "the retraining of photos is requested")
        assert sum("is requested" in words for words in events(state, "retraining")) == 1
        assert daemon.act("resume")[0] == 200
        _version(2, daemon)
        for tenant in ("photos", "cameras"):
            daemon.upload(tenant, *samples(1, 29), "few")
        daemon.upload("photos", *samples(2, 29), "more")
        assert daemon.status()["tenants"]["cameras"]["retraining"] == "none"
        picture, label = samples(1, 30)
        daemon.upload("cameras", picture[29:], label[29:], "last")
        now = _version(2, daemon, "cameras")
        assert now["tenants"]["photos"]["version"] == 2
        said(state, "the retraining of cameras is requested: 30 new labels")
        assert daemon.stop() == 0
