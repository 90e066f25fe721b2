"""The next seconds: how far what came just now will carry.

Bursts cannot be seen a window ahead, but most arrivals remember for seconds. Each slot ahead is
the level of the last window plus a part of how far the recent past was above or below it, as
seen through averages over a few spans; the parts are fitted to the history by least squares,
per slot ahead, and fade out by themselves. Scenarios are the fit's own errors, whole stretches
of them. It is made for replanning inside a window; for a whole one it is close to `last-mean`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts
from migrator.forecast.residuals import RECENT_WINDOWS, SCENARIOS, with_mean

SPANS = (1, 3, 10, 30)
"""Slots over which the recent past is averaged."""
SHRINK = 10.0
"""How many observations of nothing the fit begins with: short histories say little."""


class Nowcast:
    """Least squares on what came just now."""

    name = "nowcast"
    summary = "the recent seconds, fading into the mean of the last window"

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios whose mean is the fit."""
        if len(history) == 0 or slots == 0:
            return np.ones((SCENARIOS, slots))
        seen = history[-RECENT_WINDOWS * window_slots :]
        origins = _origins(len(seen), slots, window_slots)
        level, deviations = _features(seen, np.append(origins, len(seen)), window_slots)
        if len(origins) < 2 * len(SPANS):
            return np.full((SCENARIOS, slots), max(0.0, float(level[-1])))
        came = seen[origins[:, None] + np.arange(slots)] - level[:-1, None]
        weights = _fit(deviations[:-1], came)
        point = np.maximum(level[-1] + deviations[-1] @ weights, 0.0)
        errors = came - deviations[:-1] @ weights
        picked = np.linspace(0, len(origins) - 1, SCENARIOS).astype(np.intp)
        return with_mean(point + errors[picked], point)


def _origins(length: int, slots: int, window_slots: int) -> NDArray[np.intp]:
    """Every moment of the history with something before it and `slots` slots after it."""
    first = min(window_slots, length // 3)
    return np.arange(max(1, first), length - slots + 1, dtype=np.intp)


def _features(
    seen: Counts, origins: NDArray[np.intp], window_slots: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At each origin the last window's mean, and how far the means of `SPANS` are from it."""
    total = np.concatenate([[0.0], np.cumsum(seen)])

    def mean(span: int) -> NDArray[np.float64]:
        begin = np.maximum(0, origins - span)
        means: NDArray[np.float64] = (total[origins] - total[begin]) / (origins - begin)
        return means

    level = mean(window_slots)
    return level, np.stack([mean(span) - level for span in SPANS], axis=1)


def _fit(deviations: NDArray[np.float64], came: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per slot ahead, the weights of the deviations."""
    gram = deviations.T @ deviations
    spread = np.trace(gram) / len(gram) / len(deviations)
    weights: NDArray[np.float64] = np.linalg.solve(
        gram + (SHRINK * spread + 1e-9) * np.eye(len(gram)), deviations.T @ came
    )
    return weights


FORECASTERS = (Nowcast(),)
