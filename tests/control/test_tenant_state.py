"""What a tenant's state learns from one window for the next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.mig_views import service

from migrator.control.events import RetrainingPlanned, TrainingInterrupted
from migrator.control.retraining import TenantRetraining
from migrator.control.tenant_state import TenantState, TrainingRoom, TrainingSettings
from migrator.core.problem import Instance
from migrator.core.profiles import Curve
from migrator.core.training import Layers, TrainingConfiguration

PLACE = Instance(0, 2)


@pytest.mark.parametrize(("left_out", "slower", "missed"), [(True, 1.6, 0), (False, 1.3, 1)])
def test_a_retraining_left_out_by_the_plan_keeps_what_was_measured(
    left_out: bool, slower: float, missed: int
) -> None:
    """One that found no room is planned shorter next time, in case its duration was an outlier."""
    state, room = TenantState(service("a")), TrainingRoom(16.0, 1e6)
    state.measure_training(10.0, 16.0, first=True)
    state.leave_out(planned=False, fits=left_out)
    state.on(RetrainingPlanned(TenantRetraining(1, Curve(((16.0, 10.0),)), 1.6, 0.9)))
    most = state.most_samples(room)
    state.end_window()
    assert state.duration.slower == pytest.approx(slower)
    assert state.most_samples(room) == pytest.approx(most * 0.7**missed * 1.6 / slower, rel=0.01)


@pytest.mark.parametrize(
    ("labelled", "version", "accuracy"), [(None, 1, 0.45), (0.8, 1, 0.8), (None, 2, 0.87)]
)
def test_an_estimate_that_ends_late_still_tells_the_accuracy_on_new_data(
    labelled: float | None, version: int, accuracy: float
) -> None:
    """Unless answers are labelled, or the model was replaced meanwhile."""
    state = TenantState(service("a"))
    state.model.adopt(version, 0.87)
    state.begin_window(4, 0, labelled, TrainingRoom(16.0, 0.0))
    state.take_estimate(0.9, 0.45, 10, 3, 1)
    assert state.accuracy == accuracy
    assert (state.model.estimate_for(4), state.model.estimate_for(3)) == (0.9, None)


def test_a_late_evaluation_changes_what_the_waiting_retraining_is_expected_to_reach() -> None:
    """A failed estimate leaves a belief that is older than the data: retraining seemed useless."""
    state = TenantState(service("a"))
    state.model.adopt(1, 0.997)
    state.begin_window(4, 500, None, TrainingRoom(16.0, 1e6))
    assert state.retraining is not None
    assert state.retraining.expected < 0.999
    assert not state.take_evaluation(0.42, 3, 2), "another version was evaluated"
    assert state.take_evaluation(0.42, 3, 1)
    assert state.accuracy == 0.42
    assert state.retraining.expected == pytest.approx(0.42 + 0.3 * 0.58)
    assert not state.take_evaluation(0.3, 4, 1), "those labels are the data of the next window"
    assert state.accuracy == 0.42
    state.begin_window(5, 500, None, TrainingRoom(16.0, 1e6))
    assert state.accuracy == 0.3


def test_labels_of_answers_come_before_an_evaluation() -> None:
    state = TenantState(service("a"))
    state.model.adopt(1, 0.9)
    state.begin_window(4, 500, 0.6, TrainingRoom(16.0, 1e6))
    assert not state.take_evaluation(0.42, 3, 1)
    assert state.accuracy == 0.6


def test_an_estimate_of_a_version_that_was_replaced_does_not_tell_of_the_new_one() -> None:
    state = TenantState(service("a"), TrainingSettings(replay=50))
    state.model.adopt(2, 0.87)
    state.count_samples(labelled=400, samples=900, new_classes=5)
    state.take_estimate(0.9, 0.45, replayed=500, window=0, version=1)
    assert (state.samples(400), state.model.estimate) == (1150, 0.9)
    state.begin_window(1, 0, None, TrainingRoom(16.0, 0.0))
    assert state.accuracy == 0.87
    state.take_estimate(0.9, 0.45, replayed=700, window=1, version=2)
    assert state.samples(400) == 1100
    state.begin_window(2, 0, None, TrainingRoom(16.0, 0.0))
    assert state.accuracy == 0.45


def test_a_duration_is_a_fixed_part_and_one_that_grows_with_the_samples() -> None:
    """As measured: half as many samples take more than half as long."""
    state = TenantState(service("a"))
    for _ in range(12):
        state.measure_training(10.0, 25.0, fixed_s=5.0)
    duration = state.duration
    assert (duration.slower, duration.fixed_s) == pytest.approx((2.0, 5.0), rel=0.01)
    curve = Curve(((16.0, 5.0), (64.0, 2.0)))
    half = TenantRetraining(1, curve, duration.slower, 0.9, fixed_s=duration.fixed_s)
    assert [half.planned_s.at(sms) for sms in (16.0, 64.0)] == pytest.approx([15, 9], rel=0.01)
    # as long as expected: the spread disappears
    assert duration.variance < 0.001


def test_the_first_measurement_on_a_gpu_replaces_the_profile() -> None:
    state = TenantState(service("a"))
    state.measure_training(10.0, 18.0, fixed_s=6.0, first=True)
    assert (state.duration.slower, state.duration.fixed_s) == pytest.approx((1.2, 6.0))


def test_without_an_estimate_a_retraining_is_expected_to_gain_what_earlier_ones_gained() -> None:
    state = TenantState(service("a"))
    state.model.measure(0.2)
    assert state.expected_accuracy(0) == pytest.approx(0.2 + 0.3 * 0.8)
    for _ in range(12):
        state.model.compare(before=0.2, after=0.28, estimated=None)
    assert state.expected_accuracy(0) == pytest.approx(0.28, abs=1e-3)
    for window in range(3):  # left out again and again: it may be wrong
        state.on(RetrainingPlanned(TenantRetraining(window, Curve(((16.0, 10.0),)), 1.0, 0.28)))
        state.leave_out(planned=False, fits=True)
        state.end_window()
    assert state.expected_accuracy(0) == pytest.approx(0.2 + 0.3 * 0.8)


def test_a_gain_is_worth_more_if_later_retrainings_will_not_fit() -> None:
    """The scenario's durations grow from window to window, and so does the value."""
    tenants = [TenantState(service("a")) for _ in range(2)]
    for state, before_s in zip(tenants, (90.0, 60.0), strict=True):
        state.model.measure(0.3)
        for window, seconds in enumerate((before_s, 90.0)):
            curve = Curve(((16.0, seconds),))
            state.on(RetrainingPlanned(TenantRetraining(window, curve, 1.0, 0.4)))
            state.value_retraining(16.0, 100.0)
    steady, growing = (state.view().value_after for state in tenants)
    assert growing > 2 * steady > 0


def test_a_tenant_that_is_removed_is_not_planned_while_its_training_ends() -> None:
    state = TenantState(service("a"))
    state.on(RetrainingPlanned(TenantRetraining(1, Curve(((16.0, 10.0),)), 1.0, 0.9)))
    assert state.start_retraining(PLACE) is not None
    state.drain()
    assert state.planned, "to the end of its retraining"
    state.remove()
    assert not state.planned
    assert (state.view().retraining, state.start_retraining(PLACE)) == (None, None)


ALL, HALF, HEAD = (
    TrainingConfiguration("all", 8),
    TrainingConfiguration("half", 4, part=0.5),
    TrainingConfiguration("head", 8, layers=Layers.HEAD, memory_gib=1.0),
)
ROOM = TrainingRoom(16.0, 1e6)


def with_ways(*ways: TrainingConfiguration) -> TenantState:
    return TenantState(service("a"), TrainingSettings(ways))


def seconds_of(state: TenantState) -> dict[str, float]:
    """Planned by configuration."""
    planned = state.view().retraining
    assert planned is not None
    return {choice.configuration: choice.seconds.at(16.0) for choice in planned.choices}


def accuracies_of(state: TenantState) -> dict[str, float]:
    """Expected by configuration."""
    planned = state.view().retraining
    assert planned is not None
    return {choice.configuration: choice.accuracy_post for choice in planned.choices}


def test_a_window_offers_every_configuration_with_its_duration_and_gain() -> None:
    state = with_ways(ALL, HALF, HEAD)
    state.model.expect_gains({"all": 1.0, "half": 0.6, "head": 0.5})
    state.begin_window(1, 100, 0.4, ROOM)
    planned = state.view().retraining
    assert planned is not None
    assert [choice.memory_gib for choice in planned.choices] == [0.0, 0.0, 1.0]
    whole = state.training_s(100).at(16.0)
    assert seconds_of(state) == pytest.approx(
        {"all": whole, "half": whole / 4, "head": 0.35 * whole}
    )
    gain = accuracies_of(state)["all"] - 0.4
    assert accuracies_of(state) == pytest.approx(
        {"all": 0.4 + gain, "half": 0.4 + 0.6 * gain, "head": 0.4 + 0.5 * gain}
    )


def test_one_configuration_plans_as_a_tenant_without_any() -> None:
    plain, named = with_ways(TrainingConfiguration("", 8)), with_ways(ALL)
    for state in (plain, named):
        state.measure_training(10.0, 17.0, fixed_s=1.0)
        state.model.compare(0.4, 0.7, None)
        state.begin_window(1, 100, 0.5, ROOM)
    first, second = plain.retraining, named.retraining
    assert first is not None
    assert second is not None
    assert replace(second, configuration="") == first


def test_a_measured_duration_corrects_the_other_configurations_by_their_steps() -> None:
    state = with_ways(ALL, HALF, HEAD)
    state.begin_window(1, 100, 0.4, ROOM)
    before = seconds_of(state)
    state.measure_training(10.0, 20.0, first=True)
    state.begin_window(2, 100, 0.4, ROOM)
    assert seconds_of(state) == pytest.approx({name: 2 * s for name, s in before.items()})
    # what is measured of the head says nothing about layers that were measured themselves
    state.measure_training(10.0, 30.0, first=True, layers=Layers.HEAD)
    state.begin_window(3, 100, 0.4, ROOM)
    assert seconds_of(state) == pytest.approx(
        {"all": 2 * before["all"], "half": 2 * before["half"], "head": 3 * before["head"]}
    )
    assert state.retraining is not None
    assert state.profile_s(state.retraining).at(16.0) == pytest.approx(before["all"])


def test_the_gain_of_a_short_configuration_counts_as_what_the_longest_would_have_gained() -> None:
    short, whole = with_ways(ALL, HALF), with_ways(ALL, HALF)
    for state in (short, whole):
        state.model.expect_gains({"all": 1.0, "half": 0.5})
    short.model.compare(0.4, 0.6, 0.9, "half")
    whole.model.compare(0.4, 0.8, 0.9, "all")
    for state in (short, whole):
        state.begin_window(1, 100, 0.4, ROOM)
    assert accuracies_of(short) == pytest.approx(accuracies_of(whole))


def test_an_evaluation_changes_what_every_configuration_is_expected_to_reach() -> None:
    state = with_ways(ALL, HALF)
    state.model.expect_gains({"all": 1.0, "half": 0.5})
    state.model.adopt(1, 0.997)
    state.begin_window(4, 100, None, ROOM)
    assert state.take_evaluation(0.2, 3, 1)
    gain = accuracies_of(state)["all"] - 0.2
    assert accuracies_of(state)["half"] == pytest.approx(0.2 + 0.5 * gain)


def test_a_retraining_that_was_interrupted_keeps_its_configuration() -> None:
    state = with_ways(ALL, HALF, HEAD)
    state.begin_window(1, 100, 0.4, ROOM)
    state.choose("half")
    state.start_retraining(PLACE)
    state.on(TrainingInterrupted())
    state.choose("all")
    assert state.retraining is not None
    assert state.retraining.configuration == "half"
    assert list(seconds_of(state)) == ["half"], "a plan has no other"
    state.begin_window(2, 200, 0.4, ROOM)
    assert list(seconds_of(state)) == ["all", "half", "head"], "on other labels it begins anew"


def test_a_plan_may_choose_again_until_the_retraining_starts() -> None:
    state = with_ways(ALL, HEAD)
    state.begin_window(1, 100, 0.4, ROOM)
    before = seconds_of(state)
    state.choose("head")
    assert seconds_of(state) == before
    state.choose("all")
    planned = state.view().retraining
    assert planned is not None
    assert {choice.configuration: choice.memory_gib for choice in planned.choices} == {
        "all": 0.0,
        "head": 1.0,
    }
