"""Weights, floors and a forecaster of one's own in a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.faults import events, said
from support.live_daemon import scenario_file, served
from support.own_forecasts import RATE
from support.waiting import until

from migrator.records.rows import RunRecords
from migrator.records.store import read_records

WINDOWS = 3


def test_plans_keep_them_window_after_window(tmp_path: Path) -> None:
    path = scenario_file(tmp_path, "photos", "mail", policy="migrator")
    text = path.read_text(encoding="utf-8")
    text = text.replace("last-mean", "support.own_forecasts:as_written")
    text = text.replace("name: photos", "name: photos\n    weight: 3")
    path.write_text(text.replace("name: mail", "name: mail\n    floor: 0.9"), encoding="utf-8")
    rate, state = tmp_path / "rate", tmp_path / "state"
    rate.write_text("100", encoding="utf-8")
    with served(path, state, **{RATE: str(rate)}):
        plans = until(lambda: _plans(state), "several windows are planned")
        assert all(plan["weighting"] > 0 for plan in plans)
        about = _records(state).run.about
        assert (about["weights"], about["floors"]) == ({"photos": 3.0}, {"mail": 0.9})
        before = len(events(state))
        rate.write_text("-1", encoding="utf-8")
        said(
            state,
            "migrator could not decide",
            "forecaster: support.own_forecasts:as_written returned -1 for slot 0",
            after=before,
        )


def _plans(state: Path) -> list[dict[str, Any]]:
    """Those of the last windows; empty until there are enough."""
    windows = _records(state).windows
    plans = [dict(window.plan) for window in windows if window.plan is not None]
    return plans if len(plans) >= WINDOWS else []


def _records(state: Path) -> RunRecords:
    return read_records(state / "live" / "small" / "records.db")
