"""Which limits of a scenario request a retraining within a window, and which chance does not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.live_daemon import scenario_file

from migrator.control.events import RetrainingPlanned
from migrator.control.retraining import TenantRetraining
from migrator.control.retraining_triggers import RetrainingTriggers
from migrator.control.tenant_state import TenantState, TrainingSettings
from migrator.control.window_clock import WindowClock
from migrator.core.profiles import Curve
from migrator.workload.live import read_live


class Watched:
    """A tenant whose labels are counted by the test."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        live = read_live(scenario_file(folder, "photos"))
        settings = TrainingSettings(**limits)
        self.tenant = TenantState(live.tenants[0].service, settings)
        self.now_s, self.new, self.counts = 0.0, 0, (0, 0)
        clock = WindowClock(100.0, 1.0, now_s=lambda: self.now_s)
        plans: Any = SimpleNamespace(new_labels=lambda _: self.new)
        labels: Any = SimpleNamespace(judged=lambda *_: self.counts)
        self.clock = clock
        self.triggers = RetrainingTriggers({"photos": self.tenant}, clock, labels, plans)

    def serve(self, number: int, accuracy: float | None) -> None:
        self.tenant.switch_version(SimpleNamespace(number=number, accuracy=accuracy, about={}))

    def judge(self, answers: int, wrong: int) -> None:
        self.counts = self.counts[0] + answers, self.counts[1] + wrong
        self.new += answers

    def due(self) -> list[str]:
        return [reason for _, reason in self.triggers.due()]


def test_so_many_new_labels(tmp_path: Path) -> None:
    watched = Watched(tmp_path, after_labels=50)
    watched.new = 49
    assert watched.due() == []
    watched.new = 50
    assert watched.due() == ["50 new labels"]
    watched.tenant.drain()
    assert watched.due() == []


def test_not_while_a_requested_one_waits(tmp_path: Path) -> None:
    watched = Watched(tmp_path, after_labels=50)
    watched.new = 60
    job = TenantRetraining(0, Curve(((98.0, 1.0),)), 1.0, 0.9)
    watched.tenant.on(RetrainingPlanned(job))
    assert watched.due() == ["60 new labels"]  # that one may be left out
    requested = TenantRetraining(0, Curve(((98.0, 1.0),)), 1.0, 0.9, requested=True)
    watched.tenant.on(RetrainingPlanned(requested))
    assert watched.due() == []


def test_a_fall_of_the_accuracy_that_is_not_chance(tmp_path: Path) -> None:
    watched = Watched(tmp_path, after_drop=0.1)
    watched.serve(1, 0.9)
    assert watched.due() == []
    watched.judge(19, 19)
    assert watched.due() == []  # too few
    watched.judge(181, 11)  # 85%: less than the limit
    assert watched.due() == []
    watched.judge(100, 60)
    assert watched.due() == ["its accuracy fell from 90.0% to 70.0%"]
    # only later answers count from then on
    assert watched.due() == []
    watched.judge(30, 3)
    assert watched.due() == []
    watched.judge(30, 20)
    assert watched.due() == ["its accuracy fell from 90.0% to 61.7%"]


def test_a_small_sample_may_fall_by_chance(tmp_path: Path) -> None:
    watched = Watched(tmp_path, after_drop=0.05)
    watched.serve(1, 0.9)
    assert watched.due() == []
    watched.judge(20, 4)  # 80%, within two standard errors of 9%
    assert watched.due() == []
    watched.judge(380, 76)
    assert watched.due() == ["its accuracy fell from 90.0% to 80.0%"]


@pytest.mark.parametrize("known", [True, False])
def test_another_version_is_judged_by_its_own_answers(tmp_path: Path, known: bool) -> None:
    watched = Watched(tmp_path, after_drop=0.1)
    watched.serve(1, 0.9)
    watched.due()
    watched.judge(100, 60)
    watched.serve(2, 0.5 if known else None)
    assert watched.due() == []
    watched.judge(50, 25)
    assert watched.due() == []
    watched.judge(100, 80)
    assert len(watched.due()) == 1


def test_a_window_begins_with_no_answers(tmp_path: Path) -> None:
    watched = Watched(tmp_path, after_drop=0.1)
    watched.serve(1, 0.9)
    watched.due()
    watched.judge(15, 15)
    watched.clock.advance()
    watched.counts = 15, 15
    assert watched.due() == []
    watched.counts = 20, 20
    watched.new = 35
    assert watched.due() == ["its accuracy fell from 90.0% to 0.0%"]
