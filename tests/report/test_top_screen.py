"""A glance at a run: from records and a daemon's answer to lines that fit 80 by 24."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from support.live_records import Made, write_run

from migrator.core.catalogue import board
from migrator.records.current_run import (
    CurrentRun,
    DaemonProbe,
    DaemonState,
    UnitUsage,
    current_run,
)
from migrator.records.recent_traffic import RateMeter
from migrator.records.rows import (
    ActionRecord,
    EventRecord,
    PlanRecord,
    RetrainingRecord,
    UnitRecord,
)
from migrator.records.store import RecentRows, read_recent
from migrator.report.top_screen import Screen

ZERO_S = 1_000_000.0
NOW_S = ZERO_S + 50.0
A100 = board("A100-40GB")
RUNNING = DaemonProbe(DaemonState.RUNNING)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> RecentRows:
    path = tmp_path_factory.mktemp("top") / "quick" / "records.db"
    path.parent.mkdir()
    write_run(path, Made(began_s=ZERO_S))
    return read_recent(path)


def test_what_the_driver_reports_is_shown_by_tenant(rows: RecentRows) -> None:
    view = current_run(rows, RUNNING, NOW_S)
    start = next(unit.start for unit in view.held if unit.tenant is not None)
    owner = next(unit.tenant for unit in view.held if unit.start == start)
    usage = (UnitUsage(start, None, 1536, 20_480), UnitUsage(None, 0.25, 1024, 40_960))
    (line,) = [line for line in drawn(replace(view, usage=usage)) if line.startswith("used")]
    assert line == f"used    {owner} @{start} - busy 1.5 of 20.0 GiB, GPU 25% busy 1.0 of 40.0 GiB"
    assert not [line for line in drawn(view) if line.startswith("used")]


def drawn(view: CurrentRun, columns: int = 80, lines: int = 24, whole: bool = False) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=columns, height=lines, force_terminal=False)
    console.print(Screen(view, A100, whole=whole))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def answer(**more: Any) -> dict[str, Any]:
    counts = {"received": 500, "in_time": 400, "late": 100, "dropped": 0, "failed": 0}
    tenant = {
        **counts,
        "waiting": 3,
        "latency": {"bounds_s": [0.01, 0.1], "counts": [0, 500, 0]},
        "drained": False,
        "version": 4,
        "accuracy": 0.8,
        "evidence": "answers",
        "retraining": "running",
        "progress": 0.5,
    }
    unit = {"start": 0, "gpcs": 4, "state": "warming", "task": "photos/inference"}
    return {
        "pid": 1,
        "scenario": "quick",
        "board": "A100-40GB",
        "driver": "mig",
        "policy": "paris",
        "window": 2,
        "slot": 9,
        "slots": 20,
        "paused": False,
        "tenants": {"photos": tenant},
        "units": [unit],
    } | more


def test_records_alone_say_the_essentials(rows: RecentRows) -> None:
    lines = drawn(current_run(rows, RUNNING, NOW_S, RateMeter()))
    assert lines[0] == "quick  A100-40GB  emulated  migrator  run 1"
    assert lines[1].startswith("window 2  ████")
    assert lines[1].endswith("slot 11 of 20")
    planned, held = lines[4], lines[5]
    assert planned.startswith("planned [")
    assert "cameras 2g" in planned
    assert "photos 3g" in held
    assert "idle" in held
    # in the last ten seconds photos had 60 a second, 59 of them in time
    (photos,) = [line.split() for line in lines if line.startswith("photos ")]
    assert photos == ["photos", "60.0", "96.7%", "unknown", *"---", "90%", "none", "2", "-"]
    assert "model: photos: version 2 is better" in lines[-1]


def test_the_daemon_knows_better_where_it_answers(rows: RecentRows) -> None:
    pace, first = RateMeter(), answer()
    pace.add(NOW_S - 2, first)
    later = answer(paused=True)
    later["tenants"]["photos"] |= {"received": 600, "in_time": 480, "late": 120}
    later["tenants"]["photos"]["latency"] = {"bounds_s": [0.01, 0.1], "counts": [100, 500, 0]}
    pace.add(NOW_S, later)
    lines = drawn(current_run(rows, DaemonProbe(DaemonState.RUNNING, "", later), NOW_S, pace))
    assert lines[0] == "quick  A100-40GB  mig  paris  run 1   PAUSED"
    assert "[++++++++++++photos 4g+++++++++++++]" in lines[5]
    (photos,) = [line.split() for line in lines if line.startswith("photos ")]
    assert photos[1:4] == ["50.0", "80.0%", "32.0"]
    assert photos[4:] == ["5.0", "9.9", "3", "80%", "answers", "4", "███░░░", "50%"]


def test_a_daemon_alone_is_shown_without_plan_and_events() -> None:
    view = current_run(None, DaemonProbe(DaemonState.RUNNING, "", answer()), NOW_S, RateMeter())
    lines = drawn(view)
    assert lines[0] == "quick  A100-40GB  mig  paris"
    assert not [line for line in lines if line.startswith("planned")]
    assert (view.events, view.planned) == ((), None)


def test_the_newest_plan_of_the_window_is_the_one_shown(rows: RecentRows) -> None:
    block = {"start": 0, "gpcs": 7, "task": "cameras/retraining", "from": 8, "until": 20}
    later = PlanRecord(2, NOW_S - 2, 8, "again", blocks=(block,))
    view = current_run(replace(rows, plans=(later,)), RUNNING, NOW_S, RateMeter())
    assert view.planned is not None
    assert [(unit.gpcs, unit.tenant, unit.kind) for unit in view.planned] == [
        (7, "cameras", "retraining")
    ]
    assert "/cameras 7g/" in drawn(view)[4]


def test_shares_without_a_place_are_a_list(rows: RecentRows) -> None:
    shares = (
        UnitRecord("s1", NOW_S, None, 3.5, "photos", "inference", "ready"),
        UnitRecord("s2", NOW_S, None, 1.75, "cameras", "retraining", "training"),
    )
    block = {"start": None, "gpcs": 7.0, "task": "photos/inference", "from": 0, "until": 20}
    plan = PlanRecord(2, NOW_S - 2, 0, "again", blocks=(block,))
    view = current_run(replace(rows, units=shares, plans=(plan,)), RUNNING, NOW_S, RateMeter())
    lines = drawn(view)
    assert lines[3:5] == ["planned photos 100%", "held    cameras 25% retrains, photos 50% ready"]


def test_retrainings_and_drained_tenants_are_in_the_records(rows: RecentRows) -> None:
    running = RetrainingRecord(2, "photos", NOW_S, "running", 0.25)
    drained = ActionRecord(NOW_S, "drain", "cameras", "cli", "done", "")
    paused = ActionRecord(NOW_S, "pause", None, "cli", "done", "")
    refused = ActionRecord(NOW_S, "undrain", "cameras", "cli", "refused", "")
    changed = replace(rows, retrainings=(running,), actions=(drained, paused, refused))
    lines = drawn(current_run(changed, RUNNING, NOW_S, RateMeter()))
    assert lines[0].endswith("PAUSED")
    gone = drawn(current_run(changed, DaemonProbe(DaemonState.KILLED), NOW_S, RateMeter()))
    assert not gone[0].endswith("PAUSED"), "a restart ends a pause"
    assert next(line for line in lines if line.startswith("photos")).endswith("██░░░░ 25%")
    assert next(line for line in lines if line.startswith("cameras")).endswith("drained")


@pytest.mark.parametrize(
    ("life", "words"),
    [
        (DaemonState.ENDED, "has ended; waiting"),
        (DaemonState.KILLED, "was killed or crashed; waiting"),
        (DaemonState.SILENT, "from records alone: no answer"),
    ],
)
def test_a_daemon_that_is_down_is_noted(rows: RecentRows, life: DaemonState, words: str) -> None:
    lines = drawn(current_run(rows, DaemonProbe(life, "no answer"), NOW_S, RateMeter()))
    assert words in lines[2]


def test_events_cannot_command_the_terminal(rows: RecentRows) -> None:
    event = EventRecord(NOW_S, "model", "it raised\x1b]0;mine\x07\nand more")
    lines = drawn(current_run(replace(rows, events=(event,)), RUNNING, NOW_S, RateMeter()))
    assert lines[-1].endswith("it raised?]0;mine? and more")


def test_before_the_first_window(rows: RecentRows) -> None:
    young = replace(rows, windows=(), seconds=(), units=(), tenant_windows=(), versions=())
    lines = drawn(current_run(young, RUNNING, NOW_S, RateMeter()))
    assert lines[1] == "no window yet"


def test_a_reason_to_plan_again_is_shown_once(rows: RecentRows) -> None:
    said = (("replan", "2g@0 is late"), ("plan", "asked for a plan: 2g@0 is late"), ("replan", "x"))
    events = tuple(EventRecord(NOW_S, *kind_and_words) for kind_and_words in said)
    view = current_run(replace(rows, events=events), RUNNING, NOW_S, RateMeter())
    assert [event.kind for event in view.distinct_events] == ["plan", "replan"]


@pytest.mark.parametrize(("columns", "lines"), [(80, 12), (100, 24), (200, 60)])
def test_it_fits_the_terminal(rows: RecentRows, columns: int, lines: int) -> None:
    event = rows.events[0]
    long = replace(event, words="a long sentence about something " * 20)
    many = replace(rows, events=(long,) * 12)
    screen = drawn(current_run(many, RUNNING, NOW_S, RateMeter()), columns, lines)
    assert max(map(len, screen)) <= columns
    assert len(screen) < lines
