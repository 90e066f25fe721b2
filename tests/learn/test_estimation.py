"""Estimating what retraining brings: the curve, what the past adds, and how it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_model import Hot, Tiny

from migrator.core.training import Layers
from migrator.learn.benchmarks.benchmark import Origin, limit_samples, window_data
from migrator.learn.estimation import (
    EPOCHS,
    Past,
    TrialTraining,
    estimate,
    estimate_each,
    estimates_from,
    expected,
    limit_of,
    longest_of,
    run_trial,
)
from migrator.learn.registry import benchmark, build_model
from migrator.learn.retraining import RetrainingSettings, accuracy, retrain
from migrator.learn.samples import WindowData
from migrator.learn.zoo import SmallCnn

PARTS = st.floats(0, 1)


@pytest.mark.parametrize("decay", [0.1, 0.3, 0.5])
def test_the_limit_of_a_curve_that_closes_in_is_found(decay: float) -> None:
    curve = 0.9 - 0.4 * decay ** np.arange(5)
    assert limit_of(curve.tolist()) == pytest.approx(0.9)


def test_pre_training_says_how_much_further_all_data_leads() -> None:
    # the sample led to 0.6, all data to 0.8: half of the errors went, in a window 0.7 of that
    removed = 0.7 * (0.2 + 0.05 * 0.3) / (0.4 + 0.05)
    pretraining = [Past(0.6, 0.1, 0.8, 1.0)]
    assert expected(0.5, 0.4, 0.0, pretraining) == pytest.approx(0.5 + removed * 0.5)
    # the model answers 0.8 of the old classes, which are half of all
    by_sample, by_lift = 0.5 + removed * 0.5, 0.4 + 0.5 * 0.8
    assert expected(0.5, 0.4, 0.5, pretraining) == pytest.approx((by_sample + by_lift) / 2)


@pytest.mark.parametrize(
    "past",
    [
        [],
        [Past(0.8, 0.0, 0.88, 1.0)],
        [Past(0.8, 0.0, 0.88, 1.0), Past(0.7, 0.44, 0.82, 0.5)],
    ],
    ids=["own weights", "pre-trained", "retrained once"],
)
def test_a_model_that_missed_windows_is_expected_to_catch_up(past: list[Past]) -> None:
    # of ten classes it knows two; the sample of the other eight leads to 0.45, all data to 0.8
    assert 0.65 < expected(0.45, 0.18, 0.8, past) < 0.9


@pytest.mark.parametrize(
    ("before", "new_part", "limit", "new_before"),
    [(0.9, 0.5, 0.9, 0.9), (0.6, 0.5, 0.62, 0.6), (0.85, 0.2, 0.86, 0.85)],
)
def test_classes_that_the_model_knows_already_bring_nothing(
    before: float, new_part: float, limit: float, new_before: float
) -> None:
    from_sample = expected(limit, before, 0.0, [])
    found = expected(limit, before, new_part, [], new_before=new_before)
    assert found == pytest.approx((from_sample + before) / 2)


def test_a_trial_measures_what_is_known_of_new_classes() -> None:
    synthetic = benchmark("nc-synthetic")
    material = synthetic.load(Origin())
    first, second = (window_data(synthetic, material, at, 0, 0) for at in (0, 1))
    model = build_model("small-cnn", synthetic.classes, 0, None)
    trained, _ = retrain(model, first, 0.0, RetrainingSettings(epochs=2))
    settings = [RetrainingSettings(epochs=2)]
    assert run_trial(trained, second, settings).new_before == 0
    assert run_trial(trained, first, settings).new_before > 0.3


def test_without_new_classes_the_sample_decides() -> None:
    past = [Past(0.6, 0.1, 0.8, 1.0), Past(0.5, 0.4, 0.75, 0.5)]
    assert expected(0.7, 0.5, 0.0, past) > 0.7


@pytest.mark.parametrize("came", [0.97, 0.99, 1.0])
def test_a_trial_that_left_no_errors_says_little_about_the_next_one(came: float) -> None:
    assert 0.35 < expected(0.5, 0.3, 0.5, [Past(1.0, 0.5, came, 1.0)]) < 0.65


def test_what_new_classes_have_brought_counts_as_much_as_the_sample() -> None:
    past = [Past(0.6, 0.1, 0.8, 1.0), Past(0.5, 0.4, 0.75, 0.5)]
    removed = [(0.2 + 0.05 * 0.3) / (0.4 + 0.05), (0.25 + 0.05 * 0.3) / (0.5 + 0.05)]
    by_sample = 0.4 + (0.3 * 0.7 * removed[0] + 0.7 * removed[1]) * 0.6
    by_lift = 0.5 + 0.25 * (0.35 / 0.5)
    assert expected(0.4, 0.5, 0.25, past) == pytest.approx((by_sample + by_lift) / 2)


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
    past = Past(first.limit, before, 0.9, 1.0, estimated=first.accuracy, samples=600)
    assert first.past(0.9) == past


LONG, SHORT = RetrainingSettings(epochs=8), RetrainingSettings(epochs=2)
HALF = RetrainingSettings(epochs=8, part=0.5)
HEAD = RetrainingSettings(epochs=8, layers=Layers.HEAD)
BLOCK = RetrainingSettings(epochs=8, layers=Layers.LAST_BLOCK)
EVERY = (HEAD, SHORT, LONG, BLOCK, HALF)
TRIAL = TrialTraining((0.4, 0.5, 0.55, 0.57, 0.58), head_gain=0.1)


def accuracies(trial: TrialTraining, past: Sequence[Past] = ()) -> dict[RetrainingSettings, float]:
    estimates = estimates_from(trial, 0.4, 0.5, EVERY, past)
    assert [estimate.settings for estimate in estimates] == [*EVERY]
    return {estimate.settings: estimate.accuracy for estimate in estimates}


def test_the_longest_of_several_is_estimated_as_if_it_were_the_only_one() -> None:
    assert longest_of(EVERY) == LONG
    past = [Past(0.6, 0.1, 0.8, 1.0, HALF, 0.8)]
    (alone,) = estimates_from(replace(TRIAL, head_gain=None), 0.4, 0.5, [LONG], past)
    assert accuracies(TRIAL, past)[LONG] == alone.accuracy


def test_fewer_epochs_samples_and_layers_gain_less() -> None:
    said = accuracies(TRIAL)
    assert 0.4 < said[SHORT] < said[HALF] < said[LONG]
    assert said[HEAD] < said[BLOCK] < said[LONG]


def test_a_head_that_learned_well_on_the_sample_is_worth_its_time() -> None:
    """As with published weights, whose features already tell the classes apart."""
    assert accuracies(replace(TRIAL, head_gain=0.3))[HEAD] > accuracies(TRIAL)[HEAD] + 0.05
    assert accuracies(replace(TRIAL, head_gain=-0.1))[HEAD] < accuracies(TRIAL)[HEAD]


@pytest.mark.parametrize(("curve", "close"), [((0.9,) * 8, True), ((0.5, 0.6, 0.7, 0.9), False)])
def test_curves_of_earlier_retrainings_tell_how_gains_grow(
    curve: tuple[float, ...], close: bool
) -> None:
    earlier = Past(0.6, 0.4, 0.9, 0.5, LONG, curve=curve)
    said, usual = accuracies(TRIAL, [earlier]), accuracies(TRIAL)
    missing = (said[LONG] - said[SHORT]) / (said[LONG] - 0.4)
    assert (missing < (usual[LONG] - usual[SHORT]) / (usual[LONG] - 0.4)) is close


def test_a_short_retraining_tells_what_a_long_one_would_have_gained() -> None:
    short = Past(0.6, 0.4, 0.7, 0.5, SHORT, fraction=0.6)
    long = Past(0.6, 0.4, 0.9, 0.5, LONG)
    assert (short.removed, short.lift) == pytest.approx((long.removed, long.lift))


def test_estimates_that_were_wrong_widen_the_spread() -> None:
    right, wrong = (Past(0.6, 0.4, 0.7, 0.5, estimated=said) for said in (0.69, 0.5))
    spreads = [
        estimates_from(TRIAL, 0.4, 0.5, EVERY, past)[2].spread for past in ([right], [], [wrong])
    ]
    assert 0 < spreads[0] < spreads[1] < spreads[2]
    long, short = (estimates_from(TRIAL, 0.4, 0.5, EVERY, [])[at].spread for at in (2, 1))
    assert long < short


@pytest.fixture(scope="module")
def window() -> tuple[SmallCnn, WindowData]:
    synthetic = benchmark("nc-synthetic")
    material = limit_samples(synthetic.load(Origin()), 60, 0)
    first, second = (window_data(synthetic, material, number, 40, 0) for number in (0, 1))
    model, _ = retrain(SmallCnn.build(10, 0, 16), first, 0.0, SHORT)
    assert isinstance(model, SmallCnn)
    return model, second


def test_one_trial_is_made_for_all_configurations(window: tuple[SmallCnn, WindowData]) -> None:
    model, data = window
    alone, several = (run_trial(model, data, configs) for configs in ([LONG], EVERY))
    assert alone.curve == several.curve
    assert (alone.head_gain, several.head_gain is None) == (None, False)
    before = accuracy(model, data.held_out)
    estimates = estimate_each(model, data, before, EVERY, [])
    assert {one.settings for one in estimates} == {*EVERY}
    assert all(before <= one.accuracy <= 1 for one in estimates)
    assert len({one.seconds for one in estimates}) == 1


def test_a_training_that_diverges_gains_nothing_with_any_configuration() -> None:
    synthetic = benchmark("nc-synthetic")
    data = window_data(synthetic, synthetic.load(Origin()), 0, 0, 0)
    said = estimate_each(Hot.build(10, 0), data, 0.4, [LONG, HEAD], [])
    assert [(one.settings, one.accuracy) for one in said] == [(LONG, 0.4), (HEAD, 0.4)]
