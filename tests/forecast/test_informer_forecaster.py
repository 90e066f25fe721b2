"""The Informer among the forecasters: by name, from a file, and where it cannot say."""

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.forecast.informer.file import save
from migrator.forecast.informer.forecaster import InformerForecaster, SavedInformer
from migrator.forecast.informer.network import Shape
from migrator.forecast.informer.trained import TrainedInformer
from migrator.forecast.informer.training import Settings, least_slots, train
from migrator.forecast.last_mean import LastMean
from migrator.forecast.registry import forecaster, forecasters
from migrator.forecast.residuals import SCENARIOS

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
        "import sys; from migrator.forecast.registry import forecasters; "
        "print(*forecasters()); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"informer", "ridge", "auto"} <= set(done.stdout.split())


def test_a_saved_model_is_found_by_its_file(saved: Path) -> None:
    each = forecaster(f"informer:{saved}")
    assert isinstance(each, SavedInformer)
    assert each.name == f"informer:{saved}"
    ahead = each.ahead(_history(300), 15, WINDOW)
    assert ahead.shape == (SCENARIOS, 15)
    assert (ahead >= 0).all()
    np.testing.assert_array_equal(ahead, each.ahead(_history(300), 15, WINDOW))


def test_more_slots_than_it_was_trained_for(saved: Path) -> None:
    assert forecaster(f"informer:{saved}").ahead(_history(300), 50, WINDOW).shape[1] == 50


def test_a_model_that_does_not_fit_is_refused(saved: Path) -> None:
    each = forecaster(f"informer:{saved}")
    assert isinstance(each, SavedInformer)
    each.check_slots(2.0)
    with pytest.raises(InputError, match=r"trained on slots of 2 s and these have 1 s"):
        each.check_slots(1.0)
    with pytest.raises(InputError, match="cannot be read"):
        forecaster("informer:none")


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (_history(LEAST - 1), f"has {LEAST - 1} slots and it needs {LEAST}"),
        (np.zeros(500), "no request has come yet"),
        (np.where(np.arange(500) % 50 == 3, np.nan, 12.0), "has gaps"),
        (np.array([]), "has 0 slots"),
    ],
    ids=["short", "zeros", "gaps", "empty"],
)
def test_where_it_cannot_say_the_simple_one_does(
    history: NDArray[np.float64], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    each = InformerForecaster(QUICK)
    with caplog.at_level(logging.WARNING):
        ahead = each.ahead(history, 10, WINDOW)
        each.ahead(history, 10, WINDOW)
    whole = history[np.isfinite(history)]
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


def test_it_trains_when_the_history_has_grown_by_half(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def spy(
        history: NDArray[np.float64], slot_s: float, shape: Shape, settings: Settings
    ) -> TrainedInformer:
        lengths.append(len(history))
        return train(history, slot_s, shape, settings)

    monkeypatch.setattr("migrator.forecast.informer.training.train", spy)
    each = InformerForecaster(QUICK)
    history = _history(2 * LEAST)
    for now in range(LEAST, 2 * LEAST, WINDOW):
        each.ahead(history[:now], 5, WINDOW)
    assert lengths == [LEAST, int(1.5 * LEAST)]


def test_in_the_background_nobody_waits(caplog: pytest.LogCaptureFixture) -> None:
    history = _history(LEAST + 5)
    each = InformerForecaster(QUICK, background=True)
    each.ahead(history[: LEAST - 1], 10, WINDOW)
    first = each.ahead(history, 10, WINDOW)
    each.wait()
    assert first.shape == (SCENARIOS, 10)
    assert len(caplog.records) in (1, 2)
    later = each.ahead(history, 10, WINDOW)
    np.testing.assert_array_equal(later, InformerForecaster(QUICK).ahead(history, 10, WINDOW))


def test_it_is_listed() -> None:
    assert "informer:FILE" in forecasters()["informer"].summary
