"""A live run on the terminal: how it stands, with and without an answer of its daemon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.live_records import Made, write_run

from migrator.core.catalogue import board
from migrator.records.current_run import CurrentRun, DaemonProbe, DaemonState, current_run
from migrator.records.rows import ActionRecord, EventRecord
from migrator.records.store import RecentRows, read_recent
from migrator.report.run_json import status_json
from migrator.report.status_text import status_text

A100 = board("A100-40GB")
TENANT = {
    "received": 5000,
    "in_time": 4000,
    "late": 500,
    "dropped": 400,
    "failed": 60,
    "waiting": 40,
    "workers": {"w1": "idle", "w4": "busy"},
    "prepared": 2,
    "version": 3,
    "accuracy": 0.88,
    "evidence": "samples",
    "retraining": "running",
    "progress": 0.43,
    "overhead_s": 1.0,
    "why": "not planned: it takes too long",
}
ANSWER = {
    "window": 7,
    "slot": 4,
    "slots": 20,
    "tenants": {"photos": TENANT},
    "units": [
        {"start": 4, "gpcs": 3, "state": "training", "task": "photos/retraining"},
        {"start": 0, "gpcs": 3, "state": "ready", "task": "photos/inference"},
    ],
}


@pytest.fixture
def run(tmp_path: Path) -> RecentRows:
    path = tmp_path / "quick" / "records.db"
    write_run(path, Made(began_s=1000.0, url="http://127.0.0.1:8600"))
    return read_recent(path)


def stands(
    run: RecentRows, life: DaemonState, answer: dict[str, object] | None = None
) -> CurrentRun:
    return current_run(run, DaemonProbe(life, "it is silent", answer), now_s=1047.5)


def test_a_daemons_own_words_come_first(run: RecentRows) -> None:
    text = status_text(stands(run, DaemonState.RUNNING, ANSWER), A100)
    assert "at http://127.0.0.1:8600" in text
    assert "window 7, slot 5 of 20" in text
    assert "retraining of photos: not planned: it takes too long" in text
    lines = [line.split() for line in text.splitlines()]
    expected = "photos 5,000 4,000 500 400 60 40 2 88.0% samples 3 43%"
    assert expected.split() in lines
    # a tenant it says nothing of is as in the records
    assert any(line[:2] == ["cameras", "1,500"] for line in lines)
    (drawn,) = [line for line in text.splitlines() if "[" in line]
    assert drawn.index("photos 3g") < drawn.index("///photos 3g///")


def test_what_an_operator_did_is_shown_as_the_daemon_has_it(run: RecentRows) -> None:
    drained = {"tenants": {"photos": TENANT | {"drained": True}}, "paused": True}
    text = status_text(stands(run, DaemonState.RUNNING, ANSWER | drained), A100)
    assert "paused: plans change nothing; `migrator admin resume`" in text
    assert "drained: photos; `migrator admin undrain TENANT`" in text
    shown = status_json(stands(run, DaemonState.RUNNING, ANSWER | drained))
    assert shown["paused"] is True
    plain = status_text(stands(run, DaemonState.RUNNING, ANSWER), A100)
    assert "paused" not in plain
    assert "drained" not in plain


@pytest.mark.parametrize(
    ("life", "paused"),
    [(DaemonState.SILENT, True), (DaemonState.ENDED, False), (DaemonState.KILLED, False)],
)
def test_what_an_operator_did_is_known_from_the_records(
    run: RecentRows, life: DaemonState, paused: bool
) -> None:
    actions = (
        ActionRecord(1010.0, "drain", "cameras", "cli", "done", ""),
        ActionRecord(1011.0, "pause", None, "page", "done", ""),
        ActionRecord(1012.0, "undrain", "cameras", "cli", "refused", ""),
        ActionRecord(1013.0, "drain", "photos", "cli", "done", ""),
        ActionRecord(1014.0, "undrain", "photos", "cli", "done", ""),
    )
    stood = stands(replace(run, actions=actions), life)
    assert stood.paused is paused
    assert [tenant.name for tenant in stood.tenants if tenant.drained] == ["cameras"]


def test_events_cannot_command_the_terminal(run: RecentRows) -> None:
    event = EventRecord(1047.0, "model", "photos: it raised\x1b]0;mine\x07\x9b2J\nand more")
    odd = replace(run, events=(event,))
    text = status_text(stands(odd, DaemonState.SILENT), A100)
    assert "photos: it raised?]0;mine??2J and more" in text


def test_a_daemon_without_any_window_is_starting(run: RecentRows) -> None:
    early = replace(run, windows=(), tenant_windows=(), seconds=(), units=())
    assert "is starting; it is silent" in status_text(stands(early, DaemonState.SILENT), A100)


def test_what_a_killed_daemon_left_has_no_slot(run: RecentRows) -> None:
    stood = stands(run, DaemonState.KILLED)
    assert (stood.window, stood.slot) == (2, None)
    assert "as last recorded" in status_text(stood, A100)


def test_a_retraining_is_known_from_the_units_too(run: RecentRows) -> None:
    trains = replace(run.units[0], tenant="cameras", state="training", to_s=None)
    rows = replace(run, units=(*run.units, trains))
    cameras = current_run(rows, DaemonProbe(DaemonState.SILENT), 1047.5).tenants[0]
    assert (cameras.name, cameras.retraining, cameras.progress) == ("cameras", "running", None)
