"""A real daemon says why a tenant is not retrained, everywhere an operator may look."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
from support.live_daemon import samples, scenario_file, served
from typer.testing import CliRunner

from migrator.cli.app import app
from migrator.records.store import read_records


def test_a_profile_by_which_retraining_is_too_slow_is_named(tmp_path: Path) -> None:
    """By this profile a retraining on 20 samples takes minutes on every instance."""
    path = scenario_file(tmp_path, "photos", window_s=4, policy="migrator", training_ratio=1e5)
    state = tmp_path / "state"
    with served(path, state) as daemon:
        daemon.upload("photos", *samples(0, 40), "first")
        status = daemon.wait_for(
            lambda now: now["tenants"]["photos"]["reason"] == "too_long", "it says why"
        )
        why = status["tenants"]["photos"]["why"]
        assert "the largest instance beside those that serve; the window has" in why
        daemon.wait_for(lambda now: now["window"] > status["window"], "that window is over")
        metrics = httpx.get(f"{daemon.url}/metrics", timeout=20).text
        shown = CliRunner().invoke(app, ["status", "--state", str(state)]).output
        assert daemon.stop() == 0, daemon.said()
    printed = daemon.log.read_text(encoding="utf-8").splitlines()
    assert printed[0].startswith("driver emulated: no GPU is used")
    assert "pre-training photos: there is no model of them yet" in printed
    assert [line for line in printed if line.startswith("pre-trained photos: accuracy ")]
    name = re.escape('migrator_windows_not_retrained_total{reason="too_long",tenant="photos"}')
    (ended,) = re.findall(f"^{name} (.*)$", metrics, re.MULTILINE)
    assert float(ended) >= 1
    assert "retraining of photos: " in shown
    records = read_records(state / "live" / "small" / "records.db")
    row = next(row for row in records.retrainings if row.window == status["window"])
    assert row.reason == "too_long"
    assert row.why.startswith("not planned: takes")
    texts = [event.words for event in records.events if event.kind == "retraining"]
    assert any(text.startswith("photos: not planned: takes") for text in texts)
    # one event per window at most; the last window may have ended before its plan
    assert len(texts) <= len({row.window for row in records.retrainings})
    window = ["windows", str(status["window"]), "--state", str(state)]
    assert "not retrained" in CliRunner().invoke(app, window).output
