"""A ridge regression from the last ten minutes or so to the next window, fitted on the spot.

Inputs are the latest slots, single ones near the origin and means of more and more slots further
back; outputs are the slots ahead. Both are deviations from the last window's mean, relative to the
mean of the history. Forecasts with three penalties and plain means over short and long spans are
mixed, weighted by their past errors; on noise the mix is the means.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts, Origins, PointForecaster
from migrator.forecast.simple import SPANS, constant, last_window_mean, levels

LOOKBACK = 600
"""Slots looked back where the history is long enough."""
LEAST_WINDOWS = 4
"""With fewer windows of history there is nothing to fit: the level is the forecast."""
_MOST_ROWS = 700
"""Most examples; of a longer history only every n-th moment is one."""
_PART = 50
"""Examples that are added to the fit at once; with fewer nothing is fitted."""
_POOLING = 1.25
"""Each pool of slots is this many times as long as the one after it."""
_STRENGTHS = (0.1, 1.0, 10.0)
"""Ridge penalties, per example."""
_MODELS = len(SPANS) + len(_STRENGTHS)
_FLOOR = 0.05
"""Of the mean so far: deviations from a lower level are not taken relative to it."""
_NOTHING = 1e-6
"""Requests per slot: fewer are none, or squared deviations relative to them would overflow."""
_STEPS = 200
"""Gradient steps after which shares have settled to about a thousandth."""


class Ridge(PointForecaster):
    """Linear, so it needs little history; it learns how fast a burst ends."""

    name = "ridge"
    summary = "ridge regression from the last 600 slots, fitted on the history"
    uses_full_history = True

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the forecast of a fit to the history before it; the level if that is short."""
        level = last_window_mean(history, origins, window_slots)
        points = constant(level, slots)
        # at least a window, and never so long that few examples remain
        first = max(window_slots, min(LOOKBACK, len(history) // LEAST_WINDOWS))
        stop = int(origins.max()) - slots
        able = np.flatnonzero(origins >= first)
        if len(history) < LEAST_WINDOWS * window_slots or stop <= first or len(able) == 0:
            return points
        stride = -(-(stop - first) // _MOST_ROWS)
        rows = np.arange(first, stop + 1, stride, dtype=np.intp)
        walk = _RollingFit(history, rows[: len(rows) // _PART * _PART], slots, first, window_slots)
        points[able] = walk.points(origins[able])
        return points


def level_and_scale(
    history: Counts, origins: Origins, window_slots: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per origin the last window's mean, and the scale of deviations from it."""
    level = last_window_mean(history, origins, window_slots)
    scale = np.maximum(level, _FLOOR * _mean_so_far(history, origins))
    return level, np.where(scale < _NOTHING, 0.0, scale)


def over_scale(deviation: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows divided by their scale; zero where no request has arrived yet."""
    wide = np.broadcast_to(scale[:, None], deviation.shape)
    return np.divide(deviation, wide, out=np.zeros_like(deviation), where=wide > 0)


def _mean_so_far(history: Counts, origins: Origins) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = np.cumsum(history)[origins - 1] / origins
    return mean


def _edges(lookback: int) -> NDArray[np.intp]:
    """Pools of slots counted back from the origin: single slots first, then longer ones."""
    edges, length = [0], 1.0
    while edges[-1] < lookback:
        edges.append(min(lookback, edges[-1] + int(length)))
        length *= _POOLING
    return np.array(edges, dtype=np.intp)


class _Inputs(NamedTuple):
    """The inputs at every origin (row), divided by the unit, which is the mean so far.

    Not by the level of now: where more requests arrive than before, an error counts more.
    """

    level: NDArray[np.float64]
    unit: NDArray[np.float64]
    means: NDArray[np.float64]
    """Deviations of the means of the latest slots, one for each of `SPANS`."""
    pooled: NDArray[np.float64]
    """Deviations of the pools."""

    def part(self, rows: slice | NDArray[np.bool_]) -> _Inputs:
        """Some of the rows."""
        return _Inputs._make(column[rows] for column in self)


def _inputs(history: Counts, origins: Origins, lookback: int, window_slots: int) -> _Inputs:
    """At each origin the level and the deviations from it."""
    sums = np.concatenate(([0.0], np.cumsum(history)))
    level, scale = level_and_scale(history, origins, window_slots)
    # a rate next to nothing gives no unit either
    unit = np.where(scale > 0, _mean_so_far(history, origins), 0.0)
    edges = _edges(lookback)
    lengths = np.diff(edges)
    pools = (sums[origins[:, None] - edges[:-1]] - sums[origins[:, None] - edges[1:]]) / lengths
    # a mean of many slots is less noisy by their root, so it may weigh that much more
    pooled = over_scale((pools - level[:, None]) * np.sqrt(lengths), unit)
    means = over_scale(levels(history, origins, window_slots) - level[:, None], unit)
    return _Inputs(level, unit, means, pooled)


class _FitSums(NamedTuple):
    """Sums of products over the examples of some parts, from which coefficients follow."""

    rows: int
    gram: NDArray[np.float64]
    mixed: NDArray[np.float64]
    """Of inputs and arrivals."""
    errors: NDArray[np.float64]
    """Of the errors of every two models."""

    def fitted(self, strength: float) -> NDArray[np.float64]:
        """Coefficients with this penalty; all zero before any example."""
        held = self.gram + max(1, self.rows) * strength * np.eye(len(self.gram))
        return np.linalg.solve(held, self.mixed).astype(np.float64, copy=False)


class _RollingFit:
    """Models that are fitted again as the history grows; a forecast uses what ended before it.

    Examples are added in parts. Every model first forecasts a part from the parts that had ended
    when it began, which gives its error: later answers would favour models that overfit.
    """

    def __init__(
        self, history: Counts, rows: Origins, slots: int, lookback: int, window_slots: int
    ) -> None:
        self.history, self.lookback, self.window_slots = history, lookback, window_slots
        self.rows, self.slots = rows, slots
        self.ends = rows[_PART - 1 :: _PART] + slots
        self.windows_of_part = _PART * (rows[1] - rows[0]) / window_slots if len(rows) else 0.0
        width = len(_edges(lookback)) - 1
        empty = (np.zeros((width, width)), np.zeros((width, slots)), np.zeros((_MODELS, _MODELS)))
        self.learned = [_FitSums(0, *empty)]
        self._learn()

    def points(self, origins: Origins) -> NDArray[np.float64]:
        """Per origin the mixed forecast of all models, in requests."""
        seen = _inputs(self.history, origins, self.lookback, self.window_slots)
        deviations = np.empty((len(origins), self.slots))
        counts, part_of = np.unique(self._ended(origins), return_inverse=True)
        learned = [self.learned[count] for count in counts]
        # leaving the last window's mean must gain more than one window's error
        price = 1 / np.maximum(1.0, counts * self.windows_of_part)
        share = shares(np.stack([sums.errors for sums in learned]), SPANS.index(1), price)
        for number, sums in enumerate(learned):
            here = part_of == number
            deviations[here] = np.tensordot(
                share[number], _forecasts(seen.part(here), sums), axes=1
            )
        return np.maximum(seen.level[:, None] + seen.unit[:, None] * deviations, 0.0)

    def _ended(self, origins: Origins) -> NDArray[np.intp]:
        """How many parts had ended by each origin."""
        return np.searchsorted(self.ends, origins, side="right")

    def _learn(self) -> None:
        """Add part by part; products this small start no threads in the linear algebra."""
        seen = _inputs(self.history, self.rows, self.lookback, self.window_slots)
        for begin in range(0, len(self.rows), _PART):
            rows = slice(begin, begin + _PART)
            here, before = seen.part(rows), self.learned[-1]
            received = self.history[self.rows[rows, None] + np.arange(self.slots)]
            received = over_scale(received - here.level[:, None], here.unit)
            learned = self.learned[int(self._ended(self.rows[begin : begin + 1])[0])]
            missed = (_forecasts(here, learned) - received).reshape(_MODELS, -1)
            # a model fitted on little data then says little about its quality now
            weight = max(1, learned.rows)
            self.learned.append(
                _FitSums(
                    before.rows + _PART,
                    before.gram + here.pooled.T @ here.pooled,
                    before.mixed + here.pooled.T @ received,
                    before.errors + weight * (missed @ missed.T),
                )
            )


def _forecasts(seen: _Inputs, learned: _FitSums) -> NDArray[np.float64]:
    """Per model, row and slot the deviation from the level: means first, then ridge fits."""
    slots = learned.mixed.shape[1]
    flat = np.repeat(seen.means.T[:, :, None], slots, axis=2)
    fitted = [seen.pooled @ learned.fitted(strength) for strength in _STRENGTHS]
    none_came = -over_scale(seen.level[:, None], seen.unit)
    return np.concatenate((flat, np.maximum(np.stack(fitted), none_came)))


FORECASTERS = (Ridge(),)


def shares(
    products: NDArray[np.float64], simple: int, price: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Per matrix of summed products of errors the shares that leave the least squared error.

    `price`, of the mean squared error, is paid for taking everything from the simple forecast.
    Projected gradients with momentum (Nesterov), for all matrices at once.
    """
    models = products.shape[-1]
    start = np.zeros(products.shape[:-1])
    start[:, simple] = 1.0
    mean = np.trace(products, axis1=1, axis2=2) / models
    curved = products / np.where(mean > 0, mean, 1.0)[:, None, None]
    reach = np.linalg.eigvalsh(curved)[:, -1:]
    pace = 1 / np.where(reach > 0, reach, 1.0)
    kept = price[:, None] / 2 * start
    current, ahead, speed = start, start, 1.0
    for _ in range(_STEPS):
        slope = (curved @ ahead[:, :, None])[:, :, 0] - kept
        step = _nearest(ahead - pace * slope)
        faster = (1 + (1 + 4 * speed**2) ** 0.5) / 2
        ahead = step + (speed - 1) / faster * (step - current)
        current, speed = step, faster
    return current


def _nearest(wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per row the shares nearest to it: the same taken off each, none below zero."""
    ordered = np.sort(wanted, axis=1)[:, ::-1]
    # what is to be taken off so that just the k largest stay and sum to one
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, wanted.shape[1] + 1)
    nearest: NDArray[np.float64] = np.maximum(wanted - excess.max(axis=1, keepdims=True), 0.0)
    return nearest
