"""A forecaster of a user's own, named by its import path."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from migrator.core.errors import InputError
from migrator.forecast.own import OwnForecaster
from migrator.forecast.selection import forecaster

MODULE = '''
"""Forecasters."""

import numpy as np


class Level:
    """The mean of all slots."""

    def ahead(self, history, slots, window_slots):
        return np.full((2, slots), history.mean())


def flat(history, slots, window_slots):
    """As the last slot, as a plain list."""
    return [float(history[-1])] * slots


def spoils(history, slots, window_slots):
    history[:] = 0
    return np.ones(slots)


class Silent:
    pass


class Asking:
    def __init__(self, more):
        pass


def narrow(history):
    return history


def short(history, slots, window_slots):
    return np.ones(slots - 1)


def nan(history, slots, window_slots):
    return [1.0] * (slots - 1) + [float("nan")]


def negative(history, slots, window_slots):
    return np.vstack([np.ones(slots), np.full(slots, -2.0)])


def words(history, slots, window_slots):
    return "many"


class Tensor:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("detach it first")


def gradient(history, slots, window_slots):
    return Tensor()


def fails(history, slots, window_slots):
    return history["yesterday"]


NUMBER = 7
'''
EXAMPLES = Path(__file__).parents[2] / "examples"
HISTORY = np.array([1.0, 2.0, 3.0, 6.0])


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that Python finds."""
    (tmp_path / "own_forecasts.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_class_and_a_function_forecast_under_their_path() -> None:
    level, flat = forecaster("own_forecasts:Level"), forecaster("own_forecasts:flat")
    assert (level.name, level.summary) == ("own_forecasts:Level", "The mean of all slots.")
    assert level.ahead(HISTORY, 3, 2).tolist() == [[3.0] * 3] * 2
    assert flat.ahead(HISTORY, 3, 2).tolist() == [[6.0] * 3]


def test_gaps_are_filled_and_the_history_stays_as_it_was() -> None:
    gaps = np.array([2.0, np.nan, 4.0])
    assert forecaster("own_forecasts:Level").ahead(gaps, 1, 1).tolist() == [[3.0]] * 2
    forecaster("own_forecasts:spoils").ahead(HISTORY, 1, 1)
    assert HISTORY.tolist() == [1.0, 2.0, 3.0, 6.0]


def test_it_can_be_sent_to_another_process() -> None:
    made = pickle.loads(pickle.dumps(forecaster("own_forecasts:Level")))
    assert isinstance(made, OwnForecaster)
    assert made.ahead(HISTORY, 1, 1).tolist() == [[3.0]] * 2


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("own_forecasts:Absent", "forecaster: own_forecasts has no Absent"),
        ("own_forecasts.py", "is a file; name what is in it: own_forecasts:NAME"),
        ("own_forecasts:NUMBER", "is no function and no class"),
        ("own_forecasts:Silent", "lacks a method ahead"),
        ("own_forecasts:Asking", "it must take no arguments"),
        ("own_forecasts:narrow", r"it must take \(history, slots, window_slots\)"),
    ],
)
def test_what_is_no_forecaster_is_refused(path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        forecaster(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("short", "returned an array of 1 x 2 for 3 slots"),
        ("nan", "returned nan for slot 2, which is not finite"),
        ("negative", "returned -2 for slot 0, which is negative"),
        ("words", "returned str, which is no array of numbers"),
        ("gradient", r"returned Tensor, which is no array of numbers \(detach it first\)"),
        ("fails", r"failed with IndexError: .* \(own_forecasts.py, line \d+\); correct it"),
    ],
)
def test_what_is_no_forecast_is_refused(name: str, said: str) -> None:
    with pytest.raises(InputError, match=f"forecaster: own_forecasts:{name} {said}"):
        forecaster(f"own_forecasts:{name}").ahead(HISTORY, 3, 2)


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python finds the modules of the examples."""
    monkeypatch.syspath_prepend(EXAMPLES)


@pytest.mark.usefixtures("examples")
def test_the_example_around_pandas_repeats_what_each_place_of_a_window_had() -> None:
    pytest.importorskip("pandas")
    ahead = forecaster("pandas_forecaster:SmoothedWindows").ahead
    window = np.array([10.0, 10.0, 40.0, 10.0, 10.0])
    mean = ahead(np.tile(window, 12), 5, 5).mean(axis=0)
    assert mean.argmax() == 2
    assert mean == pytest.approx(window, rel=0.2)


@pytest.mark.usefixtures("examples")
def test_the_example_without_a_library_expects_the_highest_of_three_windows() -> None:
    ahead = forecaster("own_forecaster:highest_of_three").ahead
    assert ahead(np.array([9.0, 9, 1, 1, 5, 5, 2, 2]), 3, 2).tolist() == [[5.0] * 3]
    assert ahead(np.array([4.0]), 3, 2).tolist() == [[4.0] * 3]
