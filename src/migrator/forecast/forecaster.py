"""A forecaster: history in, arrivals ahead out, as equally likely scenarios.

The scenarios are a point forecast with the errors that it made in the past.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]
"""Requests per slot."""
SCENARIOS = 16
"""Rows of a forecast, and the most past moments from which its errors are taken."""
RECENT_WINDOWS = 15
"""Windows of history that are used: older ones tell little of the next window."""
_PARTS = 3
"""Parts of a history too short for whole windows: at least one is forecast from."""
_MOST_RATIO = 4.0
"""Most ratio of levels by which errors are scaled."""
_STRIDE = 5
"""Rows between the blocks that follow each other in one scenario, so that they differ."""
Origins = NDArray[np.intp]
"""Slots of the history at which forecasts are made, each from what is before it."""
_log = logging.getLogger(__name__)


class Forecaster(Protocol):
    """A forecaster. The same history always gives the same forecast."""

    name: str
    summary: str
    """One line for `migrator forecasters`."""

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots, one per row, equally likely, none negative.

        `history` ends now; `window_slots` is the length of a window. Without any history nothing
        is known of the rate, so every slot gets one request: tenants then count alike.
        """


class Points(Protocol):
    """A point forecast at many origins at once."""

    def __call__(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin (row) the next `slots` slots, from `history[:origin]` alone."""


def without_gaps(history: Counts) -> Counts:
    """The history with gaps (not finite, or negative) replaced by the mean of the other slots.

    Zero would look like a tenant that went quiet. If no slot has a number, all have one request.
    """
    if len(history) == 0 or (history.min() >= 0 and history.max() < np.inf):
        return history
    _warn_of_gaps()
    counted = np.isfinite(history) & (history >= 0)
    mean = float(history[counted].mean()) if counted.any() else 1.0
    return np.where(counted, history, mean)


@cache
def _warn_of_gaps() -> None:
    """Once per process: a gap stays in a history for long."""
    _log.warning(
        "a history has slots that are no number of requests; they are taken for the mean of the "
        "others"
    )


def scenarios(
    points: Points, history: Counts, slots: int, window_slots: int, count: int = SCENARIOS
) -> NDArray[np.float64]:
    """`count` scenarios around the point forecast of now, which is their mean in every slot."""
    if len(history) == 0 or slots == 0:
        return np.ones((count, slots))
    seen = without_gaps(history)[-RECENT_WINDOWS * window_slots :]
    if len(seen) == 1:
        now = np.array([1], dtype=np.intp)
        return np.tile(np.maximum(points(seen, now, slots, window_slots), 0.0), (count, 1))
    point, errors = point_and_errors(points, seen, slots, window_slots, count)
    # centring takes 1 / count of the variance away, and the mean itself is as uncertain
    wider = np.sqrt((count + 1) / (count - 1)) if count > 1 else 1.0
    return with_mean(point + _laid_out(errors, slots, count) * wider, point)


def point_and_errors(
    points: Points, history: Counts, slots: int, window_slots: int, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The point forecast of now, and past errors (arrivals less forecast), a block per origin.

    Blocks may be shorter than `slots`; errors are scaled to the level forecast now.
    The first origin has a whole window before it and every block is `slots` long where the
    history allows it. Blocks overlap where it is short: their errors still fall on other slots.
    Now and the past are asked for in one call: a forecaster that learns does so once.
    """
    part = max(1, len(history) // _PARTS)
    first, length = min(window_slots, part), max(1, min(slots, part))
    spaced = np.linspace(first, len(history) - length, count)
    origins = np.unique(np.append(spaced, len(history)).astype(np.intp))
    forecasts = points(history, origins, slots, window_slots)
    point, forecast = np.maximum(forecasts[-1], 0.0), forecasts[:-1, :length]
    received: Counts = history[origins[:-1, None] + np.arange(length)]
    growth = _growth(forecast.mean(axis=1), float(point.mean()))
    return point, (received - forecast) * growth[:, None]


def _growth(levels: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """How much larger errors are at `level` than at `levels`: counts vary as their root."""
    if level < np.finfo(np.float64).tiny:
        return np.ones_like(levels)
    near = np.clip(levels, level / _MOST_RATIO, level * _MOST_RATIO)
    growth: NDArray[np.float64] = np.sqrt(level / near)
    return growth


def with_mean(wanted: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rows, none negative, moved so that each column has its `mean`.

    Too much is taken off evenly down to zero, too little is made up in proportion: a row
    without requests keeps none, so the quiet seconds of a bursty trace survive.
    """
    rows = np.maximum(wanted, 0.0)
    means = rows.mean(axis=0)
    lowered = np.maximum(rows - _cut(rows, mean), 0.0)
    raised = mean * np.divide(rows, means, out=np.ones_like(rows), where=means > 0)
    return np.where(means > mean, lowered, raised)


def _cut(rows: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per column what to take off every row, stopping at zero, to come down to `mean`.

    Were the k largest rows to stay above zero, they would give up (their sum - all of the
    mean) / k each; the largest of these is the one at which just those k stay above.
    """
    ranks = np.arange(1, len(rows) + 1)[:, None]
    sums = np.cumsum(np.sort(rows, axis=0)[::-1], axis=0)
    cut: NDArray[np.float64] = ((sums - len(rows) * mean) / ranks).max(axis=0)
    return cut


def _laid_out(errors: NDArray[np.float64], slots: int, count: int) -> NDArray[np.float64]:
    """`count` rows of `slots` errors, centred: blocks in turn, shorter ones put end to end."""
    blocks, length = errors.shape
    block_of_row = np.arange(count) * blocks // count
    slot = np.arange(slots)
    row = (np.arange(count)[:, None] + slot // length * _STRIDE) % count
    laid_out: NDArray[np.float64] = (errors - errors.mean())[block_of_row[row], slot % length]
    return laid_out


def full_history(points: Points, whole: Counts) -> Points:
    """`points` from everything before an origin, not only the recent windows of `whole`."""
    filled = without_gaps(whole)

    def of_whole(
        history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        return points(filled, origins + len(filled) - len(history), slots, window_slots)

    return of_whole


class PointForecaster:
    """A forecaster whose scenarios are its point forecast and the errors that it made before."""

    uses_full_history = False

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots."""
        points = full_history(self.points, history) if self.uses_full_history else self.points
        return scenarios(points, history, slots, window_slots)

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin (row) the next `slots` slots, from `history[:origin]` alone."""
        raise NotImplementedError
