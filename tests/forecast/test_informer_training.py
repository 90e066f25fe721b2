"""Training: in order of time, from the histories alone, the same again."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.forecast.informer.network import Informer, Shape
from migrator.forecast.informer.training import Settings, least_slots, split, train

TINY = Shape(lookback=60, start=10, ahead=20, width=8, heads=2, dropout=0.0)
QUICK = Settings(steps=12, batch=8, every=4)


def _noise(slots: int, seed: int = 5) -> NDArray[np.float64]:
    return np.random.default_rng(seed).poisson(40, slots).astype(float)


def _weights(network: Informer) -> list[float]:
    return torch.cat([parameter.flatten() for parameter in network.parameters()]).tolist()


@pytest.mark.parametrize("slots", [200, 400, 1001])
def test_no_example_reaches_over_the_border(slots: int) -> None:
    learn, judge = split(slots, TINY)
    border = judge[0]
    assert learn[-1] + TINY.ahead == border
    assert learn[0] >= TINY.lookback
    assert judge[-1] + TINY.ahead == slots
    assert 0.05 < (slots - border) / slots < 0.15


def test_a_seed_gives_one_network_and_another_seed_another() -> None:
    history = _noise(600)
    state = torch.random.get_rng_state()
    first, again = (train([history], 1.0, TINY, QUICK) for _ in range(2))
    other = train([history], 1.0, TINY, Settings(seed=1, steps=12, batch=8, every=4))
    assert _weights(first.network) == _weights(again.network)
    assert _weights(first.network) != _weights(other.network)
    assert torch.equal(state, torch.random.get_rng_state())


def test_it_learns_a_shape_that_no_mean_has() -> None:
    wave = np.round(100 + 60 * np.sin(np.arange(3000) * 2 * np.pi / 20))
    settings = Settings(steps=150, batch=16, every=50, rate=5e-3)
    summary = train([wave], 1.0, TINY, settings).summary
    assert summary.wape < 0.8 * summary.wape_last_mean


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (np.ones(least_slots(TINY) - 1), "slots of history are too few; give at least 200"),
        (np.zeros(400), "no request in the history"),
        (np.where(np.arange(400) == 3, np.nan, 1.0), "fill the gaps first"),
        (np.where(np.arange(400) == 3, -1.0, 1.0), "fill the gaps first"),
    ],
)
def test_what_cannot_be_trained_on(history: NDArray[np.float64], words: str) -> None:
    with pytest.raises(InputError, match=words):
        train([_noise(400), history], 1.0, TINY, QUICK)
