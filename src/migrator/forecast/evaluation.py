"""How good a forecaster is on a trace.

It is walked along the trace: it sees what came before and is held to the rest. `migrator forecast
evaluate` does that on traces, `auto` on the latest windows of a history."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts, Forecaster, Origins

LEVELS = np.array([0.1, 0.5, 0.9])
"""Quantiles that are scored; the outer two bound the 80% interval where requests come steadily."""
_EMPTY = 0.5
"""Requests: a slot with fewer is an empty one."""
_NOTHING = 1e-9
"""Requests per slot: an error over so few says nothing."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Figures:
    """Figures of a forecaster on a trace; `wape` and `pinball` are over the mean received."""

    windows: int
    mean: float
    """Requests per slot that came."""
    mae: float
    """Of the scenarios' mean, in requests per slot."""
    loss: float
    """Mean pinball loss of the 10%, 50% and 90% quantiles, in requests per slot."""
    coverage: float
    """Part of the slots inside the nominal 80% interval (`interval_of`)."""
    ms: float
    """One forecast, median."""

    @property
    def wape(self) -> float | None:
        """The mean absolute error over the mean; None where nothing came."""
        return over_mean(self.mae, self.mean)

    @property
    def pinball(self) -> float | None:
        """The loss over the mean; None where nothing came."""
        return over_mean(self.loss, self.mean)


def over_mean(value: float, mean: float) -> float | None:
    """An error in requests over the mean received; None where nothing came."""
    return value / mean if mean > _NOTHING else None


def origins_of(first: int, slots: int, window_slots: int) -> Origins:
    """Window after window from `first` on, as long as a whole one is left."""
    return np.arange(first, slots - window_slots + 1, window_slots, dtype=np.intp)


def measure(
    forecaster: Forecaster,
    counts: Counts,
    origins: Origins,
    window_slots: int,
    step_done: Callable[[], None] = lambda: None,
) -> Figures:
    """The figures over these origins; at each the forecaster is given what is before it alone."""
    came, mean, quantiles, inside, taken_ms = [], [], [], [], []
    for origin in origins:
        began = time.perf_counter()
        # a copy, so that nothing can reach past its end
        ahead = forecaster.ahead(counts[:origin].copy(), window_slots, window_slots)
        taken_ms.append(1e3 * (time.perf_counter() - began))
        came.append(counts[origin : origin + window_slots])
        mean.append(ahead.mean(axis=0))
        quantiles.append(quantiles_of(ahead))
        inside.append(covered(came[-1], ahead))
        step_done()
    received, limits = np.concatenate(came), np.concatenate(quantiles, axis=1)
    return Figures(
        windows=len(came),
        mean=float(received.mean()),
        mae=float(np.abs(received - np.concatenate(mean)).mean()),
        loss=float(pinball(received, limits).mean()),
        coverage=float(np.mean(inside)),
        ms=float(np.median(taken_ms)),
    )


def quantiles_of(ahead: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per level and slot; each scenario is the middle of its equal part of the probability."""
    quantiles: NDArray[np.float64] = np.quantile(ahead, LEVELS, axis=0, method="hazen")
    return quantiles


def pinball(came: Counts, quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """The loss per level and slot."""
    missed = came - quantiles
    return np.maximum(LEVELS[:, None] * missed, (LEVELS[:, None] - 1) * missed)


def interval_of(ahead: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per slot the nominal 80% interval: a tenth of the probability below it, a tenth above.

    Where the lowest tenth is an empty slot nothing can come below: a fifth is left above, or
    the interval would hold nine tenths.
    """
    low, upper, highest = np.quantile(ahead, [0.1, 0.8, 0.9], axis=0, method="hazen")
    empty = low < _EMPTY
    return np.where(empty, 0.0, low), np.where(empty, upper, highest)


def covered(came: Counts, ahead: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Per slot whether what came is inside the nominal 80% interval."""
    low, high = interval_of(ahead)
    inside: NDArray[np.bool_] = (came >= low - _ROUNDING) & (came <= high + _ROUNDING)
    return inside
