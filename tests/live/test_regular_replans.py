"""A replan that changes nothing leaves no trace for operators."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.live_context import idle_context
from support.live_daemon import scenario_file

from migrator.control.planning_loop import REGULAR, WINDOW_BEGINS
from migrator.core.problem import Instance, Kind, Task
from migrator.live.options import DaemonOptions
from migrator.live.recorder import LiveRecorder
from migrator.policies.policy import Decision
from migrator.records.store import Records, read_records
from migrator.workload.live import read_live

SMALL = (Instance(0, 1, Task("photos", Kind.INFERENCE)),)
LARGE = (Instance(0, 2, Task("photos", Kind.INFERENCE)),)
UNUSED = Instance(4, 1)


def test_only_plans_that_change_something_are_recorded_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    serving = DaemonOptions(read_live(scenario_file(tmp_path, "photos", window_s=10)), tmp_path)
    serving.folder.mkdir(parents=True)
    of_run = Records(serving.records, scenario="s", board="b", driver="d", policy="p", seed=0)
    with of_run as records:
        context = idle_context(serving, records=records)
        now_s = [100.0]
        context.clock.now_s = lambda: now_s[0]
        context.clock.start()
        recorder = LiveRecorder(context)
        recorder.begin_window()
        followed = [
            (WINDOW_BEGINS, (SMALL, SMALL, LARGE)),
            (REGULAR, (SMALL, LARGE)),
            (REGULAR, ((*LARGE, UNUSED),)),
            (REGULAR, (SMALL,)),
        ]
        for slot, (why, slots) in enumerate(followed):
            now_s[0] = 100.0 + slot
            recorder.plan_requested(why)
            recorder.plan_followed(Decision(slots), 0.1)
    written = read_records(serving.records)
    assert [plan.slot for plan in written.plans] == [0, 3]
    assert written.windows[0].replans == 1
    assert [event.words for event in written.events] == ["asked for a plan: the window begins"]
    logged = [line for line in caplog.messages if line.startswith("plan")]
    assert len(logged) == 3, logged
