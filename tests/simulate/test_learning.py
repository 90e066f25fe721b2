"""Drift, retraining and the accuracy that serves."""

import pytest
from support.scenarios import drift

from migrator.core.scenario import Drift
from migrator.simulate.learning import Learner


def test_a_retraining_switches_the_accuracy_when_its_work_is_done() -> None:
    learner = Learner((drift(0.5, 0.9, seconds=40),))
    learner.begin(0.0, running=False)
    assert learner.accuracy == 0.5
    learner.train(10.0, 20.0, sms=32, speed=1.0)  # 20 s of work on 32 SMs: half of it
    assert learner.job is not None
    assert learner.job.done == pytest.approx(0.5)
    learner.train(20.0, 40.0, sms=16, speed=1.0)  # the other half takes 20 s on 16
    assert learner.switches == [(0.0, 0.5), (40.0, 0.9)]
    assert learner.job is None


def test_a_missed_retraining_leaves_the_model_to_fall_further() -> None:
    learner = Learner((drift(0.5, 0.8), drift(0.4, 0.8), drift(0.4, 0.8)))
    learner.begin(0.0, running=False)
    learner.begin(10.0, running=False)
    assert learner.accuracy == pytest.approx(0.5 * 0.4 / 0.8)
    learner.begin(20.0, running=False)
    assert learner.accuracy == pytest.approx(0.5 * 0.5 * 0.5)


def test_a_retraining_that_outlasts_its_window_goes_on_and_the_next_one_waits() -> None:
    learner = Learner((drift(0.5, 0.8, seconds=15), drift(0.4, 0.9, seconds=4)))
    learner.begin(0.0, running=False)
    learner.train(0.0, 10.0, sms=16, speed=1.0)
    learner.begin(10.0, running=True)
    learner.train(10.0, 20.0, sms=16, speed=1.0)
    # done 5 s into the second window, where what it learnt is worth half
    when_s, accuracy = learner.switches[1]
    assert (when_s, accuracy) == pytest.approx((15.0, 0.4))
    assert learner.job is not None
    assert learner.job.accuracy_post == 0.9


def test_a_window_may_have_nothing_to_retrain_on() -> None:
    learner = Learner((Drift(0.5, 0.5, None), drift(0.4, 0.8)))
    learner.begin(0.0, running=False)
    assert (learner.accuracy, learner.job) == (0.5, None)
    learner.train(0.0, 10.0, sms=16, speed=1.0)
    learner.begin(10.0, running=False)
    assert learner.accuracy == pytest.approx(0.4)
    assert learner.job is not None


def test_without_any_drift_every_answer_is_right() -> None:
    learner = Learner(())
    learner.begin(0.0, running=False)
    assert (learner.accuracy, learner.job) == (1.0, None)


def test_after_the_last_drift_nothing_changes() -> None:
    learner = Learner((drift(0.5, 0.9),))
    learner.begin(0.0, running=False)
    learner.begin(10.0, running=False)
    assert (learner.accuracy, learner.job) == (0.5, None)


def test_accuracy_never_exceeds_one_and_a_fresh_model_gets_what_the_scenario_says() -> None:
    learner = Learner((drift(0.9, 0.3, seconds=1), drift(0.9, 0.3, seconds=1), drift(0.5, 0.5)))
    learner.begin(0.0, running=False)
    learner.begin(10.0, running=False)
    assert learner.accuracy == 1.0
    learner.train(10.0, 20.0, sms=16, speed=1.0)
    learner.begin(20.0, running=False)
    assert learner.accuracy == 0.5
