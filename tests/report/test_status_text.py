"""A live run on the terminal: how it stands, with and without an answer of its daemon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.live_records import Made, write_run

from migrator.core.catalogue import board
from migrator.records.current_run import (
    CurrentRun,
    CurrentUnit,
    DaemonProbe,
    DaemonState,
    current_run,
    daemon_url,
)
from migrator.records.rows import ActionRecord, EventRecord
from migrator.records.runs import read_recorded_run, recorded_run
from migrator.records.store import RecentRows, read_recent
from migrator.report.run_json import status_json
from migrator.report.slices import current_slabs
from migrator.report.status_text import status_text
from migrator.report.terminal import slices_text
from migrator.report.windows_text import windows_text

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
    return read_recent(path, totals=True)


def stands(
    run: RecentRows, life: DaemonState, answer: dict[str, object] | None = None
) -> CurrentRun:
    return current_run(run, DaemonProbe(life, "it is silent", answer), now_s=1047.5)


def test_a_daemons_own_words_come_first(run: RecentRows) -> None:
    text = status_text(stands(run, DaemonState.RUNNING, ANSWER), A100)
    assert "at http://127.0.0.1:8600" in text
    assert "window 7, slot 5 of 20" in text
    lines = [line.split() for line in text.splitlines()]
    assert [
        "photos",
        "5,000",
        "4,000",
        "500",
        "400",
        "60",
        "40",
        "2",
        "88.0%",
        "samples",
        "3",
        "43%",
    ] in lines
    # a tenant it says nothing of is as in the records
    assert any(line[:2] == ["cameras", "1,500"] for line in lines)
    (drawn,) = [line for line in text.splitlines() if "[" in line]
    assert drawn.index("photos 3g") < drawn.index("///photos 3g///")


def test_where_a_daemon_listens(run: RecentRows) -> None:
    assert daemon_url(run.run) == "http://127.0.0.1:8600"
    assert daemon_url(replace(run.run, about={"host": "127.0.0.1", "port": 8600})) is None


def test_a_silent_daemon_is_shown_from_its_records(run: RecentRows) -> None:
    text = status_text(stands(run, DaemonState.SILENT), A100)
    assert "exists, but it is silent" in text
    assert "window 2, slot 8 of 20" in text


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


@pytest.mark.parametrize("tenant", ["t", "a-tenant-with-quite-a-long-name"])
def test_the_drawing_fits_every_size_and_name(tenant: str) -> None:
    units = [
        CurrentUnit(0, 4, tenant, "inference", "ready"),
        CurrentUnit(4, 2, tenant, "inference", "warming"),
        CurrentUnit(6, 1, None, "", "idle"),
    ]
    numbers, row = slices_text(current_slabs(units, A100), A100.memory_slices).splitlines()
    assert len(row) <= 100
    assert numbers.split() == ["slice", *map(str, range(8))]
    columns = (len(row) - 6) // 8
    assert [at for at, sign in enumerate(row) if sign == "["] == [
        6 + start * columns for start in (0, 4, 6)
    ]
    assert row.endswith("." * columns)
    assert all(size in row for size in (" 4g", " 2g", " 1g"))


def test_a_run_without_windows_says_so(tmp_path: Path) -> None:
    write_run(tmp_path / "quick" / "records.db")
    records = read_recorded_run(tmp_path / "quick" / "records.db").records
    empty = recorded_run(replace(records, windows=(), tenant_windows=()))
    assert "no window yet" in windows_text(empty)
