"""Durations of configurations: the fixed part stays, the steps follow from the settings."""

from __future__ import annotations

import pytest

from migrator.core.training import STEP_TIMES, Layers
from migrator.learn.durations import Duration, step_times
from migrator.learn.retraining import RetrainingSettings

EIGHT = Duration(RetrainingSettings(epochs=8), 6400, 110.0, 10.0)


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        (RetrainingSettings(epochs=4), 60),
        (RetrainingSettings(epochs=8, part=0.5), 60),
        (RetrainingSettings(epochs=8, layers=Layers.HEAD), 10 + 100 * STEP_TIMES[Layers.HEAD]),
        (RetrainingSettings(epochs=8, batch=128), 60),
    ],
)
def test_the_steps_take_their_part_of_the_time(
    settings: RetrainingSettings, seconds: float
) -> None:
    assert EIGHT.of(settings, 6400).seconds == pytest.approx(seconds)


def test_fewer_samples_take_fewer_steps() -> None:
    assert EIGHT.of(EIGHT.settings, 3200).seconds == pytest.approx(60)
    assert EIGHT.of(EIGHT.settings, 6400) is EIGHT


def test_a_measured_step_counts_and_is_more_certain() -> None:
    head = RetrainingSettings(epochs=8, layers=Layers.HEAD)
    guessed = EIGHT.of(head, 6400)
    told = EIGHT.of(head, 6400, {Layers.HEAD: 0.02, Layers.ALL: 0.1})
    assert told.seconds == pytest.approx(30)
    assert 0 < told.spread_s < guessed.spread_s
    assert EIGHT.of(RetrainingSettings(epochs=4), 6400).spread_s < guessed.spread_s


def test_what_has_not_been_measured_has_its_usual_relation() -> None:
    assert step_times({}) == STEP_TIMES
    times = step_times({Layers.ALL: 2.0})
    assert times == {layers: 2 * time for layers, time in STEP_TIMES.items()}
    assert step_times({Layers.HEAD: STEP_TIMES[Layers.HEAD], Layers.ALL: 3.0})[
        Layers.LAST_BLOCK
    ] == pytest.approx(3 * STEP_TIMES[Layers.LAST_BLOCK])
