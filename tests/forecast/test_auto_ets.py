"""A maintained library's model by import path."""

import sys

import numpy as np
import pytest

from migrator.core.errors import InputError
from migrator.forecast.forecaster import SCENARIOS
from migrator.forecast.selection import forecaster

PATH = "migrator.forecast.auto_ets:AutoEts"


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsforecast.models", None)
    with pytest.raises(
        InputError,
        match=r"^auto-ets needs statsforecast.*pip install 'migrator-gpu\[statsforecast\]'",
    ):
        forecaster(PATH)


def test_it_follows_a_trend() -> None:
    pytest.importorskip("statsforecast")
    rising = np.random.default_rng(2).poisson(100 + 2 * np.arange(60)).astype(float)
    ahead = forecaster(PATH).ahead(rising, 20, 20)
    assert ahead.shape == (SCENARIOS, 20)
    assert ahead.mean() > rising[-10:].mean()
