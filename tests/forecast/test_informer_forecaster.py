"""The Informer among the forecasters: by name, from a file, and where it cannot say."""

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.forecast.forecaster import SCENARIOS
from migrator.forecast.informer import InformerForecaster, SavedInformer
from migrator.forecast.informer.network import Shape
from migrator.forecast.informer.trained import TrainedInformer, data_hash, save
from migrator.forecast.informer.training import Settings, least_slots, train
from migrator.forecast.selection import Auto, forecaster, forecasters
from migrator.forecast.simple import LastMean

WINDOW = 20
LEAST = least_slots(Shape.for_window(WINDOW))
QUICK = Settings(steps=4, batch=4, every=2)


def _history(slots: int, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).poisson(30, slots).astype(float)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    save(train(_history(400), 2.0, Shape.for_window(WINDOW), QUICK), path)
    return path


def test_listing_forecasters_does_not_load_torch() -> None:
    code = (
        "import sys; from migrator.forecast.selection import forecasters; "
        "print(*forecasters()); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"informer", "ridge", "auto"} <= set(done.stdout.split())


def test_a_saved_model_is_found_by_its_file(saved: Path) -> None:
    informer = forecaster(f"informer:{saved}")
    assert isinstance(informer, SavedInformer)
    assert informer.name == f"informer:{saved}"
    ahead = informer.ahead(_history(300), 15, WINDOW)
    assert ahead.shape == (SCENARIOS, 15)
    assert (ahead >= 0).all()
    np.testing.assert_array_equal(ahead, informer.ahead(_history(300), 15, WINDOW))


def test_more_slots_than_it_was_trained_for(saved: Path) -> None:
    assert forecaster(f"informer:{saved}").ahead(_history(300), 50, WINDOW).shape[1] == 50


def test_a_model_that_does_not_fit_is_refused(saved: Path) -> None:
    informer = forecaster(f"informer:{saved}")
    assert isinstance(informer, SavedInformer)
    informer.check_slots(2.0, WINDOW)
    with pytest.raises(InputError, match=r"trained on slots of 2 s and these have 1 s"):
        informer.check_slots(1.0, WINDOW)
    with pytest.raises(InputError, match=r"windows of 20 slots and these have 30.*--window-s 60"):
        informer.check_slots(2.0, 30)
    with pytest.raises(InputError, match="cannot be read"):
        forecaster("informer:none")


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (_history(LEAST - 1), f"has {LEAST - 1} slots and it needs {LEAST}"),
        (np.zeros(500), "no request has come yet"),
        (np.where(np.arange(500) % 50 == 3, np.nan, 12.0), "has gaps"),
        (np.array([]), "has 0 slots"),
        (np.append(np.zeros(LEAST), _history(9)), f"no request came in the first {LEAST} slots"),
        (np.where(np.arange(500) % 50 == 3, -1.0, 12.0), "has negative numbers"),
    ],
    ids=["short", "zeros", "gaps", "empty", "empty beginning", "negative"],
)
def test_where_it_cannot_say_the_simple_one_does(
    history: NDArray[np.float64], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    informer = InformerForecaster(QUICK)
    with caplog.at_level(logging.WARNING):
        ahead = informer.ahead(history, 10, WINDOW)
        informer.ahead(history, 10, WINDOW)
    whole = history[np.isfinite(history) & (history >= 0)]
    np.testing.assert_array_equal(ahead, LastMean().ahead(whole, 10, WINDOW))
    assert [words in record.getMessage() for record in caplog.records] == [True]
    assert "last-mean forecasts instead" in caplog.text


def test_a_saved_one_steps_back_too(saved: Path, caplog: pytest.LogCaptureFixture) -> None:
    ahead = forecaster(f"informer:{saved}").ahead(_history(40), 10, WINDOW)
    np.testing.assert_array_equal(ahead, LastMean().ahead(_history(40), 10, WINDOW))
    assert "so last-mean forecasts instead" in caplog.text


def test_the_answer_depends_on_the_history_alone() -> None:
    history = _history(int(LEAST * 1.6))
    fresh = InformerForecaster(QUICK).ahead(history, 10, WINDOW)
    busy = InformerForecaster(QUICK)
    for earlier in (_history(LEAST + 9, seed=4), history[:LEAST], history[: LEAST + 30]):
        busy.ahead(earlier, 10, WINDOW)
    np.testing.assert_array_equal(busy.ahead(history, 10, WINDOW), fresh)


def _spied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths that will be trained on."""
    lengths: list[int] = []

    def spy(
        history: NDArray[np.float64], slot_s: float, shape: Shape, settings: Settings
    ) -> TrainedInformer:
        lengths.append(len(history))
        return train(history, slot_s, shape, settings)

    monkeypatch.setattr("migrator.forecast.informer.training.train", spy)
    return lengths


def test_it_trains_when_the_history_has_grown_by_half(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = _spied(monkeypatch)
    informer = InformerForecaster(QUICK)
    history = _history(2 * LEAST)
    for now in range(LEAST, 2 * LEAST, WINDOW):
        informer.ahead(history[:now], 5, WINDOW)
    assert lengths == [LEAST, int(1.5 * LEAST)]


def test_in_the_background_no_caller_waits(caplog: pytest.LogCaptureFixture) -> None:
    history = _history(LEAST + 5)
    informer = InformerForecaster(QUICK, background=True)
    informer.ahead(history[: LEAST - 1], 10, WINDOW)
    first = informer.ahead(history, 10, WINDOW)
    informer.wait()
    assert first.shape == (SCENARIOS, 10)
    assert len(caplog.records) in (1, 2)
    later = informer.ahead(history, 10, WINDOW)
    np.testing.assert_array_equal(later, InformerForecaster(QUICK).ahead(history, 10, WINDOW))


def test_a_backtest_of_a_long_history_trains_each_length_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths = _spied(monkeypatch)
    choice = Auto((InformerForecaster(Settings(steps=2)),)).explain(_history(35 * WINDOW), WINDOW)
    assert [name for name, _ in choice.losses] == ["last-mean", "informer"]
    assert lengths == sorted(set(lengths), reverse=True)
    assert len(lengths) == 5


def test_tenants_that_begin_alike_have_their_own_models() -> None:
    quiet = np.zeros(LEAST)
    first, second = (np.append(quiet, _history(LEAST, seed=seed)) for seed in (1, 2))
    informer = InformerForecaster(QUICK)
    informer.ahead(first, 10, WINDOW)
    informer.ahead(second, 10, WINDOW)
    hashes = [model.data_hash for model in informer._models.values()]
    length = int(1.5 * LEAST)
    assert hashes == [data_hash(first[:length]), data_hash(second[:length])]


def test_in_the_background_no_model_of_the_future_answers() -> None:
    history = _history(2 * LEAST)
    informer = InformerForecaster(QUICK, background=True)
    informer.ahead(history, 10, WINDOW)
    informer.wait()
    newest = informer._newest(history, WINDOW)
    assert newest is not None
    assert newest.summary.slots == int(1.5 * LEAST)
    assert informer._newest(history[: LEAST + 5], WINDOW) is None
    informer.ahead(history[: LEAST + 5], 10, WINDOW)
    informer.wait()
    older = informer._newest(history[: LEAST + 5], WINDOW)
    assert older is not None
    assert older.summary.slots == LEAST


@pytest.mark.parametrize("error", [InputError("no"), RuntimeError("no")], ids=["input", "torch"])
def test_a_training_that_fails_aside_is_said_and_tried_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    def failing(history: NDArray[np.float64], *_: object) -> TrainedInformer:
        tried.append(len(history))
        raise error

    monkeypatch.setattr("migrator.forecast.informer.training.train", failing)
    informer, history = InformerForecaster(QUICK, background=True), _history(LEAST)
    for _ in range(2):
        ahead = informer.ahead(history, 10, WINDOW)
        informer.wait()
    np.testing.assert_array_equal(ahead, LastMean().ahead(history, 10, WINDOW))
    assert tried == [LEAST, LEAST]
    assert "informer: training failed (no), to be tried again" in caplog.text
    monkeypatch.undo()
    informer.refresh(history, WINDOW)
    informer.wait()
    assert informer._newest(history, WINDOW) is not None


def test_what_training_refuses_is_left_to_the_simple_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refusing(*_: object) -> TrainedInformer:
        raise InputError("informer: too odd")

    monkeypatch.setattr("migrator.forecast.informer.training.train", refusing)
    ahead = InformerForecaster(QUICK).ahead(_history(LEAST), 10, WINDOW)
    np.testing.assert_array_equal(ahead, LastMean().ahead(_history(LEAST), 10, WINDOW))
    assert "could not be trained (informer: too odd), so last-mean forecasts" in caplog.text


def test_it_is_listed() -> None:
    assert "informer:FILE" in forecasters()["informer"].summary
