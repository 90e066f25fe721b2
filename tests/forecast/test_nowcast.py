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


def test_a_burst_carries_as_far_as_bursts_did() -> None:
    history = remembering(1500, memory=0.9)
    history[-5:] += 40
    mean = Nowcast().ahead(history, 30, WINDOW).mean(axis=0)
    assert mean[0] > 115
    assert mean[29] < 110
    forgetful = remembering(1500, memory=0.0)
    forgetful[-5:] += 40
    assert Nowcast().ahead(forgetful, 30, WINDOW).mean(axis=0)[0] < 115


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


def test_skill_is_measured_where_arrivals_have_a_memory() -> None:
    remembered = Nowcast().skill(remembering(3000, 0.98), 20, WINDOW)
    assert remembered.share > 0.3
    noise = Nowcast().skill(np.random.default_rng(5).poisson(50, 8000).astype(float), 20, WINDOW)
    assert abs(noise.share) < 0.1 < remembered.share
    assert Nowcast().skill(np.ones(50), 20, WINDOW) == (0.0, 0.0)


def test_gaps_are_mended() -> None:
    history = remembering(1500, memory=0.9)
    history[[3, 700, 1499]] = np.nan
    ahead = Nowcast().ahead(history, 10, WINDOW)
    assert np.isfinite(ahead).all()
    assert 80 < ahead.mean() < 120
