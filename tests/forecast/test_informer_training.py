"""Training: in order of time, from the history alone, the same again."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.forecast.informer import training
from migrator.forecast.informer.network import Informer, Shape
from migrator.forecast.informer.trained import answer, past_of
from migrator.forecast.informer.training import Examples, Settings, least_slots, split, train

TINY = Shape(lookback=60, start=10, ahead=20, patch=5, width=8, heads=2, dropout=0.0)
QUICK = Settings(steps=12, batch=8, every=4, stride=4)


def _bursts(slots: int) -> NDArray[np.float64]:
    """Bursts that begin by chance and end after 30 slots: no line foretells the end."""
    random = np.random.default_rng(5)
    rate = np.full(slots, 20.0)
    for begin in np.cumsum(random.integers(45, 120, slots // 80)):
        rate[begin : begin + 30] = 100.0
    return random.poisson(rate).astype(float)


def _weights(network: Informer) -> list[float]:
    return torch.cat([parameter.flatten() for parameter in network.parameters()]).tolist()


def test_what_comes_later_changes_nothing() -> None:
    longer = _bursts(1600)
    other = longer.copy()
    other[1000:] = 7.0
    first, second = (train(history[:1000], 1.0, TINY, QUICK) for history in (longer, other))
    assert _weights(first.network) == _weights(second.network)
    assert first.summary == second.summary
    assert first.data_hash == second.data_hash
    # and so do forecasts at the border
    now = np.array([1000])
    np.testing.assert_array_equal(
        first.points(longer, now, 20, 20), second.points(other, now, 20, 20)
    )


@pytest.mark.parametrize("slots", [134, 400, 1001])
def test_no_example_reaches_over_the_border(slots: int) -> None:
    learn, judge = split(slots, TINY, stride=1)
    border = judge[0]
    assert learn[-1] + TINY.ahead == border
    assert learn[0] >= TINY.lookback
    assert judge[-1] + TINY.ahead <= slots
    assert 0.2 < (slots - border) / slots < 0.3


def test_weights_depend_on_the_part_before_the_border_alone() -> None:
    history = _bursts(1000)
    other = history.copy()
    other[750:] = np.random.default_rng(3).poisson(50, 250)
    at_most = Settings(steps=8, batch=8, every=8, stride=4)
    first, second = (train(counts, 1.0, TINY, at_most) for counts in (history, other))
    assert first.summary.best_step == second.summary.best_step == 8
    assert _weights(first.network) == _weights(second.network)


def test_a_seed_gives_one_network_and_another_seed_another() -> None:
    history = _bursts(600)
    state = torch.random.get_rng_state()
    first, again = (train(history, 1.0, TINY, QUICK) for _ in range(2))
    other = train(history, 1.0, TINY, Settings(seed=1, steps=12, batch=8, every=4, stride=4))
    assert _weights(first.network) == _weights(again.network)
    assert _weights(first.network) != _weights(other.network)
    assert torch.equal(state, torch.random.get_rng_state())


def test_it_learns_what_no_line_can() -> None:
    """Twice as much follows a rise and a fall alike."""
    random = np.random.default_rng(5)
    history = np.full(2400, 50.0)
    for begin in range(70, 2400 - 40, 40):
        history[begin : begin + 20] = 50 + 45 * random.choice([-1, 1])
        history[begin + 20 : begin + 40] = 50
    # what came is made up: a network that only looked at means would see nothing
    origins = np.arange(90, 2380, 4)
    past, scale = past_of(history, origins, 60, 20)
    wanted = np.repeat(np.abs(past[:, -20:]).mean(axis=1, keepdims=True), 20, axis=1)
    flat = np.zeros((len(origins), 20))
    examples = Examples(past, wanted, scale, flat, scale[:, None] * wanted)
    taught, judged = examples.rows(slice(400)), examples.rows(slice(400, None))
    settings = Settings(steps=60, batch=16, every=20, rate=2e-2, memory=0.8)
    network, _ = training._learned(taught, judged, TINY, settings, lambda: None)
    output = answer(network, judged.past)
    assert training._missed(judged, output) < 0.4 * training._missed(judged, 0 * output)
    assert training._trust(network, judged) > 0.8


def test_of_noise_it_says_what_ridge_says() -> None:
    history = np.random.default_rng(2).poisson(30, 1200).astype(float)
    model = train(history, 1.0, TINY, QUICK)
    assert model.summary.wape <= model.summary.wape_ridge * 1.002
    assert model.trust < 0.6


def test_ten_times_the_requests_are_the_same_to_the_network() -> None:
    history, origins = _bursts(600), np.array([100, 350, 600])
    past, scale = past_of(history, origins, 60, 20)
    tenfold, scale_10 = past_of(10 * history, origins, 60, 20)
    np.testing.assert_allclose(tenfold, past, rtol=1e-5)
    np.testing.assert_allclose(scale_10, 10 * scale)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (np.ones(50), "too few; give at least 134"),
        (np.zeros(300), "no request in the history"),
        (np.where(np.arange(300) == 9, np.nan, 4.0), "fill the gaps"),
        (np.where(np.arange(300) == 9, -1.0, 4.0), "fill the gaps"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(history: NDArray[np.float64], words: str) -> None:
    with pytest.raises(InputError, match=words):
        train(history, 1.0, TINY, QUICK)


def test_the_shortest_history_can_be_trained_on() -> None:
    model = train(_bursts(least_slots(TINY)), 1.0, TINY, Settings(steps=3, batch=4, every=1))
    assert model.summary.training_examples > 0
    assert model.summary.validation_examples > 0


def test_it_stops_when_nothing_is_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter(range(1000))

    def worse(judged: Examples, said: NDArray[np.float64]) -> float:
        assert len(judged.past) == len(said)
        return float(next(losses))

    monkeypatch.setattr(training, "_missed", worse)
    taken: list[int] = []
    settings = Settings(steps=500, batch=4, every=5, patience=2)
    model = train(_bursts(300), 1.0, TINY, settings, lambda: taken.append(1))
    assert len(taken) == 15
    assert model.summary.best_step == 5
