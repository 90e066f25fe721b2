"""Deciding beside the serving path: real processes, late answers, dead planners."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import PYTHONPATH
from support.make import instances
from support.mig_views import observation, view

from migrator.control.decider import WARM_UP
from migrator.control.policy_process import PolicyProcess
from migrator.policies.fixed_shares import Static
from migrator.policies.policy import Decision, Observation, Policy
from migrator.policies.registry import policy

NOW = observation(view("a", history=[5.0] * 50), view("b", history=[5.0] * 50), slots=20)


class Slow(Static):
    """Answers after a while, with an allocation that differs in each slot; or dies or fails."""

    def __init__(self, *, seconds: float = 0.0, dies: bool = False, fails: bool = False) -> None:
        self.name, self.summary, self.seconds = "slow", "", seconds
        self.dies, self.fails = dies, fails

    def decide(self, _: Observation) -> Decision:
        time.sleep(self.seconds)
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fails:
            raise ValueError("no idea")
        return Decision(tuple(instances(f"1g@{start}:a") for start in range(3)))


def wait(until: Callable[[], bool]) -> None:
    for _ in range(1000):
        if until():
            return
        time.sleep(0.02)
    pytest.fail("nothing came in 20 s")


def test_it_answers_what_the_policy_would() -> None:
    asked: Policy = policy("equal-mig")
    with PolicyProcess(asked) as aside:
        assert aside.answer(0, 0) is None
        assert aside.ask(0, NOW)
        wait(lambda: not aside.busy)
        assert aside.answer(0, 0) == asked.decide(NOW)
        assert aside.answer(0, 0) is None, "an answer is taken once"


def test_while_it_thinks_nobody_waits_and_a_late_answer_begins_where_we_are() -> None:
    with PolicyProcess(Slow(seconds=0.5)) as aside:
        assert aside.ask(0, NOW)
        assert not aside.ask(0, NOW)
        assert aside.answer(0, 0) is None
        wait(lambda: not aside.busy)
        decision = aside.answer(0, 2)
        assert decision is not None
        assert decision.slots == (instances("1g@2:a"),)
        aside.ask(0, NOW)
        wait(lambda: not aside.busy)
        very_late = aside.answer(0, 15)
        assert very_late is not None
        assert very_late.slots == (instances("1g@2:a"),), "its last slot goes on"


def test_an_answer_for_a_window_that_is_over_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    with PolicyProcess(Slow()) as aside:
        aside.ask(3, NOW)
        wait(lambda: not aside.busy)
        assert aside.answer(4, 0) is None
        assert "after its window was over" in caplog.text
        assert aside.unused == {"dropped": 1}


def test_a_planner_that_dies_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with PolicyProcess(Slow(dies=True)) as aside:
        aside.ask(0, NOW)
        wait(lambda: not aside.busy)
        assert aside.answer(0, 0) is None
        assert "slow died and is started again" in caplog.text
        assert aside.unused == {"lost": 1}
        assert aside.ask(0, NOW), "the next question goes to a new process"


def test_one_that_fails_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    with PolicyProcess(Slow(fails=True)) as aside:
        aside.ask(0, NOW)
        wait(lambda: not aside.busy)
        assert aside.answer(0, 0) is None
        assert "slow could not decide: ValueError: no idea" in caplog.text
        assert aside.unused == {"lost": 1}
        assert aside.ask(0, NOW)


class Unreadable:
    """Cannot be unpickled by whoever gets it."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number",)


class Odd(Slow):
    """Answers with something else than a decision."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    def decide(self, _: Observation) -> Any:
        return Unreadable() if self.answer == "unreadable" else self.answer


@pytest.mark.parametrize(
    ("answer", "why"), [(None, "it answered NoneType"), ("unreadable", "cannot be read")]
)
def test_an_answer_that_is_no_decision_is_told(answer: object, why: str) -> None:
    reports: list[str] = []
    with PolicyProcess(Odd(answer), report=reports.append) as aside:
        aside.ask(0, NOW)
        wait(lambda: not aside.busy)
        assert aside.answer(0, 0) is None
        assert why in reports[0]
        assert aside.ask(0, NOW)


def test_one_that_thinks_for_too_long_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with PolicyProcess(Slow(seconds=600), patience_s=0.2) as aside:
        aside.ask(0, NOW)
        wait(lambda: not aside.busy)
        assert aside.answer(0, 3) is None
        assert "slow thinks for too long and is started again" in caplog.text
        assert aside.unused == {"lost": 1}


def test_a_rehearsal_has_all_the_time_it_takes_and_is_for_nobody() -> None:
    with PolicyProcess(Slow(seconds=1.0), patience_s=0.2) as aside:
        assert aside.ask(WARM_UP, NOW)
        time.sleep(0.5)
        assert aside.busy
        assert aside.is_warming_up
        wait(lambda: not aside.busy)
        assert aside.answer(0, 0) is None
        assert not aside.is_warming_up
        assert aside.unused == {}


def test_an_answer_that_nobody_took_does_not_go_to_the_next_question() -> None:
    with PolicyProcess(Slow()) as aside:
        aside.ask(0, NOW)
        wait(lambda: not aside.busy)
        assert aside.ask(0, replace(NOW, slot=2))
        wait(lambda: not aside.busy)
        decision = aside.answer(0, 2)
        assert decision is not None
        assert len(decision.slots) == 3


def test_a_program_can_end_while_it_thinks() -> None:
    """Nobody closes it; the process must not hold up whoever asked."""
    program = (
        "from test_policy_process import PolicyProcess, NOW, Slow\n"
        "aside = PolicyProcess(Slow(seconds=600))\n"
        "assert aside.ask(0, NOW)\n"
    )
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), PYTHONPATH])
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=60, check=True)


def test_closing_does_not_wait_for_an_answer() -> None:
    aside = PolicyProcess(Slow(seconds=600))
    aside.ask(0, NOW)
    aside.close()
    assert not aside.busy


def test_closing_while_a_long_question_is_sent_is_quiet(
    caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    long = observation(view("a", history=[5.0] * 400_000), slots=20)
    for _ in range(3):
        aside = PolicyProcess(Slow())
        assert aside.ask(0, long)
        time.sleep(0.05)  # amid the writing: its process still imports
        aside.close()
    assert not [message for message in recwarn if "thread" in str(message.message)]
    assert not caplog.records
