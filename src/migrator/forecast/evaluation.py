"""How good a forecaster is: walked along a trace, it sees what came before and is held to the rest.

Selection uses it on the latest windows of a history, `migrator forecast evaluate` on traces.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts, Forecaster
from migrator.forecast.residuals import Origins

LEVELS = np.array([0.1, 0.5, 0.9])
"""Quantiles that are scored; the outer two bound the 80% interval."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Figures:
    """Figures of a forecaster on a trace; `wape` and `pinball` are over the mean received."""

    windows: int
    mean: float
    """Requests per slot that came."""
    mae: float
    """Of the scenarios' mean, in requests per slot."""
    wape: float
    pinball: float
    """Mean loss of the 10%, 50% and 90% quantiles."""
    coverage: float
    """Part of the slots between the 10% and the 90% quantile."""
    ms: float
    """One forecast, median."""


def origins_of(first: int, slots: int, window_slots: int) -> Origins:
    """Window after window from `first` on, as long as a whole one is left."""
    return np.arange(first, slots - window_slots + 1, window_slots, dtype=np.intp)


def measure(
    each: Forecaster,
    counts: Counts,
    origins: Origins,
    window_slots: int,
    step_done: Callable[[], None] = lambda: None,
) -> Figures:
    """The figures over these origins; at each the forecaster is given what is before it alone."""
    came, mean, quantiles, taken_ms = [], [], [], []
    for origin in origins:
        began = time.perf_counter()
        # a copy, so that nothing can reach past its end
        ahead = each.ahead(counts[:origin].copy(), window_slots, window_slots)
        taken_ms.append(1e3 * (time.perf_counter() - began))
        came.append(counts[origin : origin + window_slots])
        mean.append(ahead.mean(axis=0))
        quantiles.append(quantiles_of(ahead))
        step_done()
    received, limits = np.concatenate(came), np.concatenate(quantiles, axis=1)
    rate = float(received.mean())
    mae = float(np.abs(received - np.concatenate(mean)).mean())
    over = max(rate, np.finfo(np.float64).tiny)
    return Figures(
        windows=len(came),
        mean=rate,
        mae=mae,
        wape=mae / over,
        pinball=float(pinball(received, limits).mean()) / over,
        coverage=_coverage(received, limits),
        ms=float(np.median(taken_ms)),
    )


def quantiles_of(ahead: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per level and slot; each scenario is the middle of its equal part of the probability."""
    found: NDArray[np.float64] = np.quantile(ahead, LEVELS, axis=0, method="hazen")
    return found


def pinball(came: Counts, quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """The loss per level and slot."""
    missed = came - quantiles
    return np.maximum(LEVELS[:, None] * missed, (LEVELS[:, None] - 1) * missed)


def _coverage(came: Counts, quantiles: NDArray[np.float64]) -> float:
    inside = (came >= quantiles[0] - _ROUNDING) & (came <= quantiles[-1] + _ROUNDING)
    return float(inside.mean())
