"""Estimating what retraining brings: the curve, what the past adds, and how it does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_model import Tiny

from migrator.learn.benchmarks.benchmark import Origin, window_data
from migrator.learn.estimation import EPOCHS, Past, estimate, expected, limit_of
from migrator.learn.registry import benchmark
from migrator.learn.retraining import RetrainingSettings, accuracy, retrain

PARTS = st.floats(0, 1)


@pytest.mark.parametrize("decay", [0.1, 0.3, 0.5])
def test_the_limit_of_a_curve_that_closes_in_is_found(decay: float) -> None:
    curve = 0.9 - 0.4 * decay ** np.arange(5)
    assert limit_of(curve.tolist()) == pytest.approx(0.9)


def test_a_curve_that_falls_leads_down() -> None:
    assert limit_of([0.5, 0.4, 0.38, 0.37, 0.37]) == pytest.approx(0.37, abs=0.02)


def test_without_a_past_the_usual_part_of_the_errors_is_removed() -> None:
    assert expected(0.6, 0.4, 0.5, []) == pytest.approx(0.6 + 0.3 * 0.4)


def test_pre_training_says_how_much_further_all_data_leads() -> None:
    # the sample led to 0.6, all data to 0.8: half of the errors went, in a window 0.7 of that
    assert expected(0.5, 0.4, 0.5, [Past(0.6, 0.1, 0.8, 1.0)]) == pytest.approx(0.5 + 0.35 * 0.5)


def test_later_what_new_classes_have_brought_counts_twice_as_much() -> None:
    past = [Past(0.6, 0.1, 0.8, 1.0), Past(0.5, 0.4, 0.75, 0.5)]
    by_sample = 0.4 + (0.3 * 0.35 + 0.7 * 0.5) * 0.6
    by_lift = 0.5 + 0.25 * (0.35 / 0.5)
    assert expected(0.4, 0.5, 0.25, past) == pytest.approx((by_sample + 2 * by_lift) / 3)


@given(PARTS, PARTS, PARTS, st.lists(st.tuples(PARTS, PARTS, PARTS, PARTS), max_size=4))
def test_an_expectation_is_an_accuracy(
    limit: float, before: float, new_part: float, past: list[tuple[float, float, float, float]]
) -> None:
    assert 0 <= expected(limit, before, new_part, [Past(*earlier) for earlier in past]) <= 1


def test_an_estimate_repeats_and_leaves_the_model_alone() -> None:
    synthetic = benchmark("nc-synthetic")
    data = window_data(synthetic, synthetic.load(Origin()), 0, 0, 0)
    model = Tiny.build(synthetic.classes, 0)
    before, scores = accuracy(model, data.held_out), model.infer(data.held_out.inputs[:20])
    first, second = (estimate(model, data, before, RetrainingSettings(), []) for _ in range(2))
    assert first.curve == second.curve
    assert first.accuracy == second.accuracy
    assert len(first.curve) == EPOCHS + 1
    assert first.accuracy > 0.7
    np.testing.assert_array_equal(model.infer(data.held_out.inputs[:20]), scores)
    assert first.past(0.9) == Past(first.limit, before, 0.9, 1.0)


def test_nothing_is_expected_below_what_serves() -> None:
    synthetic = benchmark("nc-synthetic")
    data = window_data(synthetic, synthetic.load(Origin()), 0, 0, 0)
    model, _ = retrain(Tiny.build(synthetic.classes, 0), data, 0.0, RetrainingSettings())
    before = accuracy(model, data.held_out)
    worse = [Past(0.5, 0.5, 0.0, 1.0)]
    said = estimate(model, data, before, RetrainingSettings(), worse)
    assert said.accuracy >= before > expected(said.limit, before, 1.0, worse)
