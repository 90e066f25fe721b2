"""A forecaster: history in, arrivals ahead out, as equally likely scenarios; the simple ones.

The scenarios are a mean forecast with the errors that it made in the past. The forecasters here
have no model: the last window repeated, means, a weighted mean, a period.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]
"""Requests per slot."""


class Forecaster(Protocol):
    """One way to look ahead. Implementations are values: the same history gives the same answer."""

    name: str
    summary: str
    """One line for `migrator forecasters`."""

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots, one per row, equally likely, none negative.

        `history` ends now; `window_slots` is the length of a window. Without any history nothing
        is known of the rate, so every slot gets one request: tenants then count alike.
        """


SCENARIOS = 16
"""Rows of a forecast, and the most origins of its residuals: a whole block each."""
RECENT_WINDOWS = 15
"""What is older tells little of the next window and costs time."""
_PARTS = 3
"""A history too short for whole windows is parted: one to forecast from, one for the errors."""
_MOST_RATIO = 4.0
"""Of levels: beyond it their root is no guide."""
_STRIDE = 5
"""Rows between the blocks that follow each other in one scenario, so that they differ."""
Origins = NDArray[np.intp]
"""Slots of the history at which a forecast is made: it may see what is before."""
_log = logging.getLogger(__name__)


class Points(Protocol):
    """A point forecast at many origins at once."""

    def __call__(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin (row) the next `slots` slots, from `history[:origin]` alone."""


def without_gaps(history: Counts) -> Counts:
    """The history with a number in every slot: where none can be right, the mean of the others.

    None is right that is not finite or negative. A gap taken for zero would look like a tenant
    that went quiet; without any slot left, one request each as where nothing is known.
    """
    if len(history) == 0 or (history.min() >= 0 and history.max() < np.inf):
        return history
    _warn_of_gaps()
    counted = np.isfinite(history) & (history >= 0)
    mean = float(history[counted].mean()) if counted.any() else 1.0
    return np.where(counted, history, mean)


@cache
def _warn_of_gaps() -> None:
    """Once: a gap stays in a history for long."""
    _log.warning(
        "a history has slots that are no number of requests; they are taken for the mean of the "
        "others"
    )


def scenarios(
    points: Points, history: Counts, slots: int, window_slots: int, count: int = SCENARIOS
) -> NDArray[np.float64]:
    """`count` scenarios around what `points` says now; their mean in every slot is that point."""
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
    """The point forecast of now, and what came less what was forecast, one block per origin.

    Blocks may be shorter than `slots`, and errors are as large as at the level forecast now.
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


HALF_LIFE_WINDOWS = 0.25
"""Half-life of a slot's weight, in windows. Steady traces like it shorter, bursty ones longer;
over six real ones the mean pinball loss differs by 2% between 1/8 and 1/2."""
_HALVINGS = 16
"""What weighs less than 2 to the minus this is left out."""
LONG_WINDOWS = 5
"""Windows that `long-mean` remembers."""
SPANS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 5.0)
"""Windows a level may remember: some traces follow the last seconds, some hold for an hour."""
_MOST_CYCLES = 8
"""More of them blur a period that is not a whole number of slots."""
MIN_CYCLES = 3
"""A period must have been seen so often."""
_CLEAR = 0.2
"""A weaker correlation is worth less than what a wrong period costs."""
_SIGMAS = 6.0
"""In standard errors of a correlation of noise: the highest of a thousand reaches 3 to 4."""
_NEARLY = 0.8
_HUMP = 1.5
"""The hump that begins at lag L lies before 1.5 L, its first multiple after."""


class Ewma(PointForecaster):
    """One level that follows a change within a fraction of a window."""

    name = "ewma"
    summary = "exponentially weighted mean, half-life a quarter of a window"

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the weighted mean of what is before it."""
        half_life = HALF_LIFE_WINDOWS * window_slots
        ago = np.arange(min(len(history), int(np.ceil(_HALVINGS * half_life))))
        slot = origins[:, None] - 1 - ago
        weights = np.where(slot >= 0, 0.5 ** (ago / half_life), 0.0)
        level = (history[np.maximum(slot, 0)] * weights).sum(axis=1) / weights.sum(axis=1)
        return constant(level, slots)


class LastWindow(PointForecaster):
    """Keeps the shape of the last window; noisy where that shape is chance.

    Where it saw no request it expects none, so its intervals are too narrow on traces with
    many empty slots.
    """

    name = "last-window"
    summary = "the last window repeated, slot by slot"

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the window before it, again and again; a shorter history as it is."""
        spans = np.minimum(origins, window_slots)[:, None]
        repeated: Counts = history[origins[:, None] - spans + np.arange(slots) % spans]
        return repeated


class LastMean(PointForecaster):
    """No shape, one level: hard to beat where seconds are noise about a slow rate."""

    name = "last-mean"
    summary = "the mean of the last window"

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the mean of the window before it; of what there is where that is less."""
        level = last_window_mean(history, origins, window_slots)
        return constant(level, slots)


class LongMean(PointForecaster):
    """For arrivals in bursts that are shorter than a window and come at random: how many of them
    fell into the last window says next to nothing about the next one."""

    name = "long-mean"
    summary = f"the mean of the last {LONG_WINDOWS} windows"

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the mean of the windows before it; of what there is where that is less."""
        spans = np.array([LONG_WINDOWS * window_slots])
        return constant(means_before(history, origins, spans)[:, 0], slots)


def constant(level: NDArray[np.float64], slots: int) -> NDArray[np.float64]:
    """Per origin its level in each of `slots` slots."""
    return np.repeat(level[:, None], slots, axis=1)


def last_window_mean(history: Counts, origins: Origins, window_slots: int) -> NDArray[np.float64]:
    """Per origin the mean of the window that ends there, or of what there is of it."""
    return means_before(history, origins, np.array([window_slots]))[:, 0]


def levels(history: Counts, origins: Origins, window_slots: int) -> NDArray[np.float64]:
    """Per origin the means of the latest slots, one for each of `SPANS`."""
    spans = np.maximum(np.rint(np.array(SPANS) * window_slots), 1).astype(np.intp)
    return means_before(history, origins, spans)


def means_before(history: Counts, origins: Origins, spans: NDArray[np.intp]) -> NDArray[np.float64]:
    """Per origin (row) and span the mean of that many slots before it, or of those there are."""
    sums = np.concatenate(([0.0], np.cumsum(history)))
    lengths = np.minimum(origins[:, None], spans)
    before = sums[origins][:, None] - sums[origins[:, None] - lengths]
    # differences of large sums can fall a rounding below nothing
    mean: NDArray[np.float64] = np.maximum(before, 0.0) / lengths
    return mean


class Seasonal(PointForecaster):
    """For arrivals by the clock: jobs every few minutes, polling, batches."""

    name = "seasonal"
    summary = "a period found by autocorrelation, else the mean of the last window"

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the level plus the shape of the period found before it, if any."""
        level = last_window_mean(history, origins, window_slots)
        points = constant(level, slots)
        # one origin at a time: a transform that fits the cache is faster than all at once
        for row, origin in enumerate(origins):
            period = find_period(history[:origin])
            if period.slots:
                points[row] = _carried_on(history[:origin], period, slots, window_slots)
        return points


def _carried_on(
    history: Counts, period: Period, slots: int, window_slots: int
) -> NDArray[np.float64]:
    """The level plus the shape of the last cycles, from the phase of now on."""
    seen = len(history) // period.slots
    number = min(seen, _MOST_CYCLES)
    cycles = history[-number * period.slots :].reshape(number, period.slots)
    cycle = cycles.mean(axis=0)
    # the part of the variance of a mean of these cycles that is the shape and not noise
    trust = number * period.correlation / (1 + (number - 1) * period.correlation)
    # whole cycles, so that the level does not depend on the phase
    recent = min(seen, max(1, window_slots // period.slots))
    level = history[-recent * period.slots :].mean()
    shape = trust * (cycle - cycle.mean())
    carried_on: Counts = np.maximum(level + shape, 0.0)[np.arange(slots) % period.slots]
    return carried_on


class Period(NamedTuple):
    """How long a cycle is, and how far to trust it."""

    slots: int
    """0: there is none."""
    correlation: float
    """Of slots one period apart."""


NO_PERIOD = Period(0, 0.0)


def find_period(history: Counts) -> Period:
    """The period of a history that is not empty."""
    correlations = _autocorrelations(history)
    lowest = np.minimum.accumulate(correlations)
    # the last lag is looked at only to see whether the one before it is a peak
    rises = (correlations - np.maximum(lowest, 0.0))[:-1]
    highest = rises.max()
    if highest < max(_CLEAR, _SIGMAS / np.sqrt(len(history))):
        return NO_PERIOD
    first = int((rises >= _NEARLY * highest).argmax())
    lag = first + int(rises[first : int(_HUMP * first) + 1].argmax())
    if correlations[lag + 1] > correlations[lag]:
        return NO_PERIOD
    return Period(lag, float(correlations[lag]))


def _autocorrelations(history: Counts) -> NDArray[np.float64]:
    """The correlation at each lag up to one past a third of the history, by FFT."""
    lags = len(history) // MIN_CYCLES + 2
    size = 1 << (len(history) + lags).bit_length()
    spectrum = np.fft.rfft(history - history.mean(), size)
    products = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, size)[:lags]
    # a constant history leaves only rounding, in which there is no period
    if products[0] <= 1e-12 * (history**2).sum():
        return np.zeros(lags)
    correlations: NDArray[np.float64] = products / products[0]
    return correlations


FORECASTERS = (LastWindow(), LastMean(), LongMean(), Ewma(), Seasonal())
