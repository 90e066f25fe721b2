"""Drift, retraining, and the accuracy of the model that serves."""

from collections.abc import Sequence

import pytest
from support.scenarios import drift, profile

from benchmarks.replayed import MeasuredModel, MeasuredWindow
from migrator.control.events import TrainingCompleted
from migrator.control.retraining import Phase, TenantRetraining
from migrator.control.tenant_state import TenantState, TrainingRoom, TrainingSettings
from migrator.core.problem import Instance
from migrator.core.profiles import Service
from migrator.core.scenario import Drift
from migrator.simulation.tenant import DriftingModel

ROOM = TrainingRoom(64, 20.0)


def _state() -> TenantState:
    service = Service("a", profile(), 0.1, 1)
    return TenantState(service, TrainingSettings(held_out=0.2))


def _begun(drifts: Sequence[Drift], windows: int = 1) -> tuple[DriftingModel, TenantState]:
    model, state = DriftingModel(tuple(drifts)), _state()
    for window in range(windows):
        _begin(model, state, window)
    return model, state


def _begin(model: DriftingModel | MeasuredModel, state: TenantState, window: int) -> None:
    model.begin(10.0 * window, window)
    model.plan(state, window, ROOM, known=False)


def _finish(
    model: DriftingModel | MeasuredModel, state: TenantState, at_s: float
) -> TenantRetraining:
    job = state.retraining
    assert job is not None
    if job.phase is Phase.WAITING:
        state.start_retraining(Instance(0, 1))
    model.finish(state, job, at_s, 0.5)
    state.model.learn_labels(job.window)
    state.on(TrainingCompleted())
    return job


def test_a_retrained_model_serves_once_it_is_swapped_in() -> None:
    model, state = _begun([drift(0.5, 0.9, seconds=40)])
    assert (model.accuracy, state.accuracy) == (0.5, 0.5)
    _finish(model, state, 7.0)
    assert model.switches == [(0.0, 0.5), (7.5, 0.9)]
    assert (model.accuracy, state.accuracy) == (0.9, 0.9)


def test_a_missed_retraining_leaves_the_model_to_fall_further() -> None:
    drifts = [drift(0.5, 0.8), drift(0.4, 0.8), drift(0.4, 0.8)]
    assert _begun(drifts, 2)[0].accuracy == pytest.approx(0.5 * 0.4 / 0.8)
    assert _begun(drifts, 3)[0].accuracy == pytest.approx(0.5 * 0.5 * 0.5)


def test_a_retraining_that_outlasts_its_window_is_worth_less() -> None:
    model, state = _begun([drift(0.5, 0.8, seconds=15), drift(0.4, 0.9, seconds=4)])
    job = state.start_retraining(Instance(0, 1))
    _begin(model, state, 1)
    assert state.retraining is job, "it goes on"
    model.end_estimate(state, 1)
    _finish(model, state, 15.0)
    assert state.outlasted(1)
    assert model.switches[1] == pytest.approx((15.5, 0.4))
    model.plan(state, 1, ROOM, known=False)
    assert state.retraining is not None
    assert (state.retraining.window, state.retraining.expected) == (1, 0.9)


def test_a_window_may_have_nothing_to_retrain_on() -> None:
    model, state = _begun([Drift(0.5, 0.5, None), drift(0.4, 0.8)])
    assert (model.accuracy, state.retraining) == (0.5, None)
    _begin(model, state, 1)
    assert model.accuracy == pytest.approx(0.4)
    assert state.retraining is not None


@pytest.mark.parametrize(("drifts", "windows", "accuracy"), [((), 1, 1.0), ((0.5, 0.9), 2, 0.5)])
def test_without_a_drift_nothing_changes(
    drifts: tuple[float, ...], windows: int, accuracy: float
) -> None:
    model, state = _begun([drift(*drifts)] if drifts else [], windows)
    assert (model.accuracy, state.retraining) == (accuracy, None)


def test_accuracy_never_exceeds_one_and_a_fresh_model_gets_what_the_scenario_says() -> None:
    model, state = _begun([drift(0.9, 0.3), drift(0.9, 0.3), drift(0.5, 0.5)], 2)
    assert model.accuracy == 1.0
    _finish(model, state, 15.0)
    _begin(model, state, 2)
    assert model.accuracy == 0.5


def test_only_a_policy_that_knows_the_future_sees_what_a_retraining_brings() -> None:
    model, state = DriftingModel((Drift(0.5, 0.9, drift().seconds, 0.7),)), _state()
    model.end_estimate(state, 0)
    for known, expected in ((False, 0.7), (True, 0.9)):
        model.begin(0.0, 0)
        model.plan(state, 0, ROOM, known=known)
        assert state.retraining is not None
        assert state.retraining.expected == expected


def test_measured_accuracies_are_those_of_the_model_that_serves() -> None:
    windows = (
        MeasuredWindow({-1: 0.8}, 0.9, None, 100, False, None),
        MeasuredWindow({-1: 0.6, 1: 0.7}, 0.75, 0.9, 100, True, 0.72, 2.0),
        MeasuredWindow({-1: 0.3}, 0.65, 0.8, 100, False, 0.1),
    )
    model, state = MeasuredModel(windows), _state()
    _begin(model, state, 0)
    assert (model.accuracy, state.accuracy, state.retraining) == (0.8, 0.9, None)
    _begin(model, state, 1)
    job = state.retraining
    assert job is not None
    assert (state.accuracy, job.expected, job.slower) == (0.75, 0.9, 2.0)
    assert job.seconds == state.training_s(80), "what is held out is not trained on"
    _finish(model, state, 14.0)
    assert (model.accuracy, state.accuracy) == (0.7, 0.72)
    _begin(model, state, 2)
    assert model.accuracy == pytest.approx(0.7 * 0.3 / 0.6), "it fell as the other model did"
    _finish(model, state, 25.0)
    assert len(model.switches) == 1, "a refused model does not serve"


def test_a_window_without_requests_has_the_accuracy_of_the_next_one() -> None:
    windows = [MeasuredWindow(accuracy, 0.5, None, 0, False, None) for accuracy in ({}, {-1: 0.6})]
    model = MeasuredModel(tuple(windows))
    for window in range(2):
        model.begin(10.0 * window, window)
        assert model.accuracy == 0.6
    nothing = MeasuredModel(tuple(windows[:1]), accuracy=0.7)
    nothing.begin(0.0, 0)
    assert nothing.accuracy == 0.7
