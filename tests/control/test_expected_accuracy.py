"""How estimates are corrected by retrainings that have completed."""

from __future__ import annotations

import pytest

from migrator.control.expected_accuracy import ExpectedAccuracy


def test_a_first_estimate_is_believed_however_small_the_gain() -> None:
    learned = ExpectedAccuracy()
    for estimate in (0.5, 0.55, 0.9):
        assert learned.after_retraining(0.5, estimate, idle_windows=0) == pytest.approx(estimate)


def test_an_estimator_that_is_always_too_low_is_tested_after_three_windows() -> None:
    learned = ExpectedAccuracy()
    expected = [learned.after_retraining(0.5, estimate=0.4, idle_windows=idle) for idle in range(4)]
    assert expected == pytest.approx([0.5, 0.5, 0.5, 0.65])


def test_without_an_estimate_a_first_retraining_restores_most_of_what_was_lost() -> None:
    learned = ExpectedAccuracy(made=0.95)
    assert learned.after_retraining(0.45, estimate=None, idle_windows=0) == pytest.approx(0.75)
    # an estimate says more than that
    assert learned.after_retraining(0.45, estimate=0.7, idle_windows=0) == pytest.approx(0.7)
    learned.completed(before=0.5, after=0.6, estimate=None)
    assert learned.after_retraining(0.5, estimate=None, idle_windows=0) == pytest.approx(0.6)


def test_an_estimator_that_is_too_low_is_corrected_by_one_retraining() -> None:
    learned = ExpectedAccuracy()
    learned.completed(before=0.5, after=0.85, estimate=0.55)
    assert learned.after_retraining(0.5, estimate=0.5, idle_windows=0) == pytest.approx(0.8)


def test_a_retraining_that_brought_nothing_is_not_repeated_on_the_same_promise() -> None:
    learned = ExpectedAccuracy()
    learned.completed(before=0.8, after=0.8, estimate=0.95)
    assert learned.after_retraining(0.8, estimate=0.95, idle_windows=0) == pytest.approx(0.8)


def test_a_right_estimate_without_a_gain_is_believed_after_one_retraining() -> None:
    learned = ExpectedAccuracy()
    learned.completed(before=0.8, after=0.8, estimate=0.8)
    assert learned.after_retraining(0.8, estimate=0.8, idle_windows=0) == pytest.approx(0.8)


def test_a_tenant_is_tried_again_later_and_later_while_retrainings_bring_nothing() -> None:
    learned = ExpectedAccuracy()
    waits = []
    for _ in range(3):
        learned.completed(before=0.8, after=0.8, estimate=0.8)
        idle = 0
        while learned.after_retraining(0.8, 0.8, idle) == pytest.approx(0.8):
            idle += 1
        waits.append(idle)
    assert waits == [6, 12, 24]


def test_a_retraining_whose_estimate_is_of_other_data_corrects_nothing() -> None:
    learned = ExpectedAccuracy()
    learned.completed(before=0.5, after=0.85, estimate=None)
    assert learned.after_retraining(0.5, estimate=0.6, idle_windows=0) == pytest.approx(0.6)


def test_without_an_estimate_the_next_gain_is_that_of_the_first_then_smoothed() -> None:
    learned = ExpectedAccuracy()
    learned.completed(before=0.5, after=0.9, estimate=None)
    assert learned.after_retraining(0.6, estimate=None, idle_windows=0) == pytest.approx(0.92)
    learned.completed(before=0.5, after=0.8, estimate=None)
    assert learned.after_retraining(0.6, estimate=None, idle_windows=0) == pytest.approx(0.88)


@pytest.mark.parametrize(
    ("retrainings", "predict"),
    [
        ((), False),
        (((0.5, 0.8),), True),
        (((0.5, 0.8), (0.6, 0.82)), True),
        (((0.5, 0.8), (0.6, 0.7)), False),
        (((0.5, 0.8), (0.5, 0.98)), False),
        (((0.5, 0.8), (0.5, 0.98), (0.5, 0.9)), True),
        (((0.8, 0.8),), False),
        (((0.5, 0.8), (0.5, 0.8), (0.8, 0.7)), False),
    ],
    ids=[
        *("none", "one", "as before", "less", "more", "as smoothed", "in vain", "in vain later"),
    ],
)
def test_retrainings_predict_the_next_until_one_gains_something_else(
    retrainings: tuple[tuple[float, float], ...], predict: bool
) -> None:
    learned = ExpectedAccuracy()
    for before, after in retrainings:
        learned.completed(before, after, estimate=None)
    assert learned.predicts == predict


def test_accuracies_stay_within_their_range() -> None:
    learned = ExpectedAccuracy()
    learned.completed(before=0.5, after=0.9, estimate=0.6)
    assert learned.after_retraining(0.5, estimate=0.95, idle_windows=0) == 1.0
    learned.completed(before=0.9, after=0.3, estimate=0.9)
    assert learned.after_retraining(0.5, estimate=0.4, idle_windows=0) == 0.5
