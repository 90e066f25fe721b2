"""What a tenant's state learns from one window for the next."""

from __future__ import annotations

import numpy as np
import pytest
from support.mig_views import service

from migrator.control.tenant_state import Retraining, TenantState, TrainingRoom
from migrator.core.profiles import Curve
from migrator.workload.live import LiveTenant


@pytest.mark.parametrize(("left_out", "slower", "missed"), [(True, 1.6, 0), (False, 1.3, 1)])
def test_a_retraining_left_out_by_the_plan_keeps_what_was_measured(
    left_out: bool, slower: float, missed: int
) -> None:
    """One that found no room is planned shorter next time, in case its duration was an outlier."""
    state = TenantState(LiveTenant(service("a"), None, None, None, None, 0, 1, 0, 0.0), np.empty(0))
    state.slower, state.left_out = 1.6, left_out
    state.retraining = Retraining(1, Curve(((16.0, 10.0),)), 1.6, 0.9)
    state.end_window()
    assert state.slower == pytest.approx(slower)
    assert state.missed == missed


@pytest.mark.parametrize(
    ("labelled", "version", "accuracy"), [(None, 1, 0.45), (0.8, 1, 0.8), (None, 2, 0.87)]
)
def test_an_estimate_that_ends_late_still_tells_the_accuracy_on_new_data(
    labelled: float | None, version: int, accuracy: float
) -> None:
    """Unless answers are labelled, or the model was replaced meanwhile."""
    state = TenantState(LiveTenant(service("a"), None, None, None, None, 0, 1, 0, 0.0), np.empty(0))
    state.version, state.accuracy = version, 0.87
    state.begin(4, 0, labelled, TrainingRoom(16.0, 0.0))
    state.take_estimate(0.9, 0.45, 10, 3, 1)
    assert state.accuracy == accuracy
    assert (state.estimate, state.estimated_for) == (0.9, 4)


def test_an_estimate_of_a_version_that_was_replaced_does_not_tell_of_the_new_one() -> None:
    live = LiveTenant(service("a"), None, None, None, None, 0, 1, 50, 0.0)
    state = TenantState(live, np.empty(0))
    state.version = 2
    state.trained_on(labelled=400, samples=900, new_classes=5)
    state.take_estimate(0.9, 0.45, replayed=500, window=0, version=1)
    assert (state.learned(400), state.judged, state.estimate) == (1150, None, 0.9)
    state.take_estimate(0.9, 0.45, replayed=700, window=0, version=2)
    assert (state.learned(400), state.judged) == (1100, 0.45)


def test_a_duration_is_a_fixed_part_and_one_that_grows_with_the_samples() -> None:
    """As measured: half as many samples take more than half as long."""
    state = TenantState(LiveTenant(service("a"), None, None, None, None, 0, 1, 0, 0.0), np.empty(0))
    for _ in range(12):
        state.took(planned_s=10.0, seconds=25.0, fixed_s=5.0)
    assert (state.slower, state.fixed_s) == pytest.approx((2.0, 5.0), rel=0.01)
    half = Retraining(
        1, Curve(((16.0, 5.0), (64.0, 2.0))), state.slower, 0.9, fixed_s=state.fixed_s
    )
    assert [half.planned_s.at(each) for each in (16.0, 64.0)] == pytest.approx([15, 9], rel=0.01)
    # as long as expected: the spread disappears
    assert state.variance < 0.001


def test_the_first_measurement_on_a_gpu_replaces_the_profile() -> None:
    state = TenantState(LiveTenant(service("a"), None, None, None, None, 0, 1, 0, 0.0), np.empty(0))
    state.took(planned_s=10.0, seconds=18.0, fixed_s=6.0, followed=1.0)
    assert (state.slower, state.fixed_s) == pytest.approx((1.2, 6.0))


def test_without_an_estimate_a_retraining_is_expected_to_gain_what_earlier_ones_gained() -> None:
    state = TenantState(LiveTenant(service("a"), None, None, None, None, 0, 1, 0, 0.0), np.empty(0))
    state.accuracy = 0.2
    assert state.expected_accuracy(0) == pytest.approx(0.2 + 0.3 * 0.8)
    for _ in range(12):
        state.gained(before=0.2, after=0.28)
    assert state.expected_accuracy(0) == pytest.approx(0.28, abs=1e-3)
    state.skipped = 3  # left out again and again: it may be wrong
    assert state.expected_accuracy(0) == pytest.approx(0.2 + 0.3 * 0.8)


def test_a_gain_is_worth_more_if_later_retrainings_will_not_fit() -> None:
    """The scenario's durations grow from window to window, and so does the value."""
    tenants = [
        TenantState(LiveTenant(service("a"), None, None, None, None, 0, 1, 0, 0.0), np.empty(0))
        for _ in range(2)
    ]
    for state, before_s in zip(tenants, (90.0, 60.0), strict=True):
        state.accuracy = 0.3
        for window, seconds in enumerate((before_s, 90.0)):
            state.retraining = Retraining(window, Curve(((16.0, seconds),)), 1.0, 0.4)
            state.value_retraining(16.0, 100.0, None)
    steady, growing = (each.view().value_after for each in tenants)
    assert growing > 2 * steady > 0
