"""Forecasters by name. A module of this package offers its own in `FORECASTERS`."""

from __future__ import annotations

from functools import cache

from migrator.core.registry import found_in, pick
from migrator.forecast.forecaster import Forecaster


@cache
def forecasters() -> dict[str, Forecaster]:
    """Every forecaster by name."""
    return found_in("migrator.forecast", "FORECASTERS")


def forecaster(name: str) -> Forecaster:
    """The forecaster called `name`; an unknown name is answered with the nearest ones."""
    return pick("forecaster", name, forecasters())
