"""The next seconds from the last ones: they fade into the level, as fast as they used to."""

import numpy as np
import pytest

from migrator.forecast.nowcast import NEAREST, Nowcast

WINDOW = 100


def remembering(slots: int, memory: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Arrivals around 100 that forget a burst by the factor `memory` every slot."""
    random = np.random.default_rng(3)
    deviation, counts = 0.0, []
    for _ in range(slots):
        deviation = memory * deviation + random.normal(0, 5)
        counts.append(max(0.0, 100 + deviation))
    return np.array(counts)


def test_without_history_every_slot_gets_one_request() -> None:
    assert Nowcast().ahead(np.empty(0), 5, WINDOW).tolist() == [[1.0] * 5] * NEAREST


def test_what_never_changes_goes_on() -> None:
    ahead = Nowcast().ahead(np.full(500, 7.0), 30, WINDOW)
    assert ahead == pytest.approx(np.full((NEAREST, 30), 7.0))


def test_a_burst_carries_as_far_as_bursts_did() -> None:
    history = remembering(1500, memory=0.9)
    history[-5:] += 40
    mean = Nowcast().ahead(history, 30, WINDOW).mean(axis=0)
    assert mean[0] > 115
    assert mean[29] < 110
    forgetful = remembering(1500, memory=0.0)
    forgetful[-5:] += 40
    assert Nowcast().ahead(forgetful, 30, WINDOW).mean(axis=0)[0] < 115


def test_scenarios_are_as_wide_as_the_errors_were() -> None:
    history = remembering(1500, memory=0.9)
    spread = Nowcast().ahead(history, 30, WINDOW).std(axis=0)
    assert spread[0] < spread[-10:].mean()
    assert 2 < spread[0] < 8


@pytest.mark.parametrize("length", [1, 5, 60])
def test_a_short_history_is_enough_for_a_level(length: int) -> None:
    ahead = Nowcast().ahead(np.full(length, 4.0), 10, WINDOW)
    assert ahead.shape == (NEAREST, 10)
    assert ahead == pytest.approx(np.full((NEAREST, 10), 4.0))


def test_bursts_stay_bursts() -> None:
    """A slot has 100 requests or none; a scenario never has half of them in every slot."""
    random = np.random.default_rng(4)
    on, counts = False, []
    for _ in range(3000):
        on = on if random.random() < 0.8 else random.random() < 0.3
        counts.append(100.0 if on else 0.0)
    counts[-1] = 0.0
    ahead = Nowcast().ahead(np.array(counts), 20, WINDOW)
    assert ((ahead < 5) | (ahead > 60)).mean() > 0.9
    assert 10 < ahead.mean() < 50


def test_noise_is_not_followed() -> None:
    history = np.random.default_rng(5).normal(100, 15, 4000)
    history[-10:] = 110.0
    assert Nowcast().ahead(history, 20, WINDOW).mean() < 104


def test_skill_is_measured_where_arrivals_have_a_memory() -> None:
    remembered = Nowcast().skill(remembering(3000, 0.98), 20, WINDOW)
    assert remembered.share > 0.3
    noise = Nowcast().skill(np.random.default_rng(5).poisson(50, 8000).astype(float), 20, WINDOW)
    assert abs(noise.share) < 0.1 < remembered.share
    assert Nowcast().skill(np.ones(50), 20, WINDOW) == (0.0, 0.0)


def test_skill_on_rare_bursts_is_less_certain_than_on_noise() -> None:
    random = np.random.default_rng(1)
    counts = random.poisson(5, 1600).astype(float)
    noise = Nowcast().skill(counts, 30, 200)
    for at in random.choice(1500, 8, replace=False):
        counts[at : at + 25] += random.poisson(150, 25)
    assert Nowcast().skill(counts, 30, 200).error > 2 * noise.error > 0


def test_a_move_is_followed() -> None:
    """The level has been higher for 15 slots, and used to stay so for 250."""
    level = np.full(4000, 100.0)
    for begin in range(500, 4000, 900):
        level[begin : begin + 250] = 250.0
    history = level + np.random.default_rng(5).normal(0, 15, 4000)
    assert Nowcast().ahead(history[: 500 + 3 * 900 + 15], 20, WINDOW).mean() > 220


def test_gaps_are_mended() -> None:
    history = remembering(1500, memory=0.9)
    history[[3, 700, 1499]] = np.nan
    ahead = Nowcast().ahead(history, 10, WINDOW)
    assert np.isfinite(ahead).all()
    assert 80 < ahead.mean() < 120
