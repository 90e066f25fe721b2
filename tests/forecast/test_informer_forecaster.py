"""The Informer among the forecasters: from a file, and where it has no forecast."""

import logging
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.forecast.forecaster import SCENARIOS
from migrator.forecast.informer import SavedInformer
from migrator.forecast.informer.network import Shape
from migrator.forecast.informer.trained import save
from migrator.forecast.informer.training import Settings, train
from migrator.forecast.selection import forecaster
from migrator.forecast.simple import LastMean

WINDOW = 20
QUICK = Settings(steps=4, batch=4, every=2)


def _history(slots: int, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).poisson(30, slots).astype(float)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("informer") / "model"
    save(train([_history(400)], 2.0, Shape.for_window(WINDOW), QUICK), path)
    return path


def test_without_a_model_it_says_how_to_get_one() -> None:
    with pytest.raises(InputError, match=r"informer needs a model; train one with.*informer:MODEL"):
        forecaster("informer")


def test_a_saved_model_is_found_by_its_file(saved: Path) -> None:
    informer = forecaster(f"informer:{saved}")
    assert isinstance(informer, SavedInformer)
    assert informer.name == f"informer:{saved}"
    ahead = informer.ahead(_history(300), 15, WINDOW)
    assert ahead.shape == (SCENARIOS, 15)
    assert (ahead >= 0).all()
    np.testing.assert_array_equal(ahead, informer.ahead(_history(300), 15, WINDOW))
    # more slots than it was trained for
    assert informer.ahead(_history(300), 50, WINDOW).shape[1] == 50


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
        (_history(59), "has 59 slots and it needs 60"),
        (np.zeros(500), "no request has come yet"),
        (np.where(np.arange(500) % 50 == 3, np.nan, 12.0), "has gaps"),
        (np.where(np.arange(500) % 50 == 3, -1.0, 12.0), "has negative numbers"),
    ],
    ids=["short", "zeros", "gaps", "negative"],
)
def test_where_it_has_no_forecast_the_simple_one_has(
    history: NDArray[np.float64], words: str, saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    informer = forecaster(f"informer:{saved}")
    with caplog.at_level(logging.WARNING):
        ahead = informer.ahead(history, 10, WINDOW)
        informer.ahead(history, 10, WINDOW)
    whole = history[np.isfinite(history) & (history >= 0)]
    np.testing.assert_array_equal(ahead, LastMean().ahead(whole, 10, WINDOW))
    assert [words in record.getMessage() for record in caplog.records] == [True]
    assert "last-mean forecasts instead" in caplog.text
