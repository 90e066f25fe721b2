"""Forecasters by name. A module of this package offers its own in `FORECASTERS`.

A name with a colon is a forecaster and the file it reads: `informer:model.informer`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from migrator.core.registry import found_in, pick
from migrator.forecast.forecaster import Forecaster
from migrator.forecast.informer.forecaster import saved

_SAVED = "informer:"


@cache
def forecasters() -> dict[str, Forecaster]:
    """Every forecaster by name."""
    return found_in("migrator.forecast", "FORECASTERS")


def forecaster(name: str) -> Forecaster:
    """The forecaster called `name`; an unknown name is answered with the nearest ones."""
    if name.startswith(_SAVED):
        return saved(Path(name.removeprefix(_SAVED)))
    return pick("forecaster", name, forecasters())
