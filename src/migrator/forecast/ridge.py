"""A ridge regression from the last ten minutes or so to the next window, fitted on the spot.

Inputs are the latest slots, one by one near the origin and pooled further back, outputs the
slots ahead, both as deviations from the last window's mean over that mean. How strongly
coefficients are held to zero is settled by what each strength forecast so far; the strongest
leaves the mean itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts
from migrator.forecast.level import last_window_mean
from migrator.forecast.reaching import Reaching
from migrator.forecast.residuals import Origins, scenarios

LOOKBACK = 600
"""Slots looked back where the history is long enough."""

LEAST_WINDOWS = 4
"""With fewer windows of history there is nothing to fit: the level is the forecast."""

_MOST_ROWS = 1000
"""Examples are taken so sparsely that there are no more."""

_LEAST_ROWS = 50
_POOLING = 1.25
"""Each pool of slots is so many times as long as the one after it."""

_STRENGTHS = (0.1, 1.0, 10.0)
"""Per example, of deviations relative to the level."""

_FLOOR = 0.05
"""Of the mean so far: deviations from a lower level are not taken relative to it."""

_NOTHING = 1e-6
"""Requests per slot: fewer are none, or squared deviations relative to them would overflow."""


class Examples(NamedTuple):
    """Pairs of what was seen at an origin and what came after it, over `scale` about `level`."""

    level: NDArray[np.float64]
    scale: NDArray[np.float64]
    seen: NDArray[np.float64]


class Ridge:
    """Linear, so it needs little history; it learns how fast a burst ends."""

    name = "ridge"
    summary = "ridge regression from the last 600 slots, fitted on the history"

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots."""
        return scenarios(Reaching(self.points, history), history, slots, window_slots)

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the level plus what the regression fitted before it adds."""
        level = last_window_mean(history, origins, window_slots)
        flat = np.repeat(level[:, None], slots, axis=1)
        first = _lookback(len(history), window_slots)
        stop = int(origins.max()) - slots
        if len(history) < LEAST_WINDOWS * window_slots or stop <= first:
            return flat
        stride = -(-(stop - first) // _MOST_ROWS)
        rows = np.arange(first, stop + 1, stride, dtype=np.intp)
        asked = _examples(history, np.maximum(origins, first), first, window_slots)
        added = _Walk(history, rows, slots, first, window_slots).added(origins, asked.seen)
        able = (origins >= first)[:, None]
        return np.where(able, np.maximum(flat + asked.scale[:, None] * added, 0.0), flat)


def level_and_scale(
    history: Counts, origins: Origins, window_slots: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per origin the last window's mean and what deviations from it are measured in."""
    level = last_window_mean(history, origins, window_slots)
    so_far = np.cumsum(history)[origins - 1] / origins
    scale = np.maximum(level, _FLOOR * so_far)
    return level, np.where(scale < _NOTHING, 0.0, scale)


def over_scale(deviation: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows relative to their scale; nothing where no request has come yet."""
    wide = np.broadcast_to(scale[:, None], deviation.shape)
    return np.divide(deviation, wide, out=np.zeros_like(deviation), where=wide > 0)


def _lookback(length: int, window_slots: int) -> int:
    """At least a window, and never so long that few examples remain."""
    return max(window_slots, min(LOOKBACK, length // LEAST_WINDOWS))


def _examples(history: Counts, rows: Origins, lookback: int, window_slots: int) -> Examples:
    """What is seen at each row: pooled deviations from its level."""
    sums = np.concatenate(([0.0], np.cumsum(history)))
    level, scale = level_and_scale(history, rows, window_slots)
    edges = _edges(lookback)
    lengths = np.diff(edges)
    pooled = (sums[rows[:, None] - edges[:-1]] - sums[rows[:, None] - edges[1:]]) / lengths
    # a mean of many slots is less noisy by their root, so it may weigh that much more
    deviation = (pooled - level[:, None]) * np.sqrt(lengths)
    return Examples(level, scale, over_scale(deviation, scale))


def _edges(lookback: int) -> NDArray[np.intp]:
    """Pools of slots counted back from the origin: single slots first, then longer ones."""
    edges, length = [0], 1.0
    while edges[-1] < lookback:
        edges.append(min(lookback, edges[-1] + int(length)))
        length *= _POOLING
    return np.array(edges, dtype=np.intp)


class _Walk:
    """Fits that grow with the history: each origin is answered by what ended before it."""

    def __init__(
        self, history: Counts, rows: Origins, slots: int, lookback: int, window_slots: int
    ) -> None:
        found = _examples(history, rows, lookback, window_slots)
        came: Counts = history[rows[:, None] + np.arange(slots)] - found.level[:, None]
        self.ends = rows + slots
        # in requests, not relative ones: where more come than before an error counts more
        so_far = np.cumsum(history)[rows - 1] / rows
        weights = over_scale(found.scale[:, None], so_far)
        self.seen, self.came = weights * found.seen, weights * over_scale(came, found.scale)
        width = self.seen.shape[1]
        self.gram, self.mixed = np.zeros((width, width)), np.zeros((width, slots))
        self.missed = np.zeros(len(_STRENGTHS) + 1)
        self.used = 0

    def added(self, origins: Origins, asked: NDArray[np.float64]) -> NDArray[np.float64]:
        """Per origin what is added to its level, in its scale."""
        added = np.zeros((len(origins), self.mixed.shape[1]))
        for place in np.argsort(origins, kind="stable"):
            self._learn(int(np.searchsorted(self.ends, origins[place], side="right")))
            best = int(self.missed.argmin())
            if self.used >= _LEAST_ROWS and best < len(_STRENGTHS):
                added[place] = asked[place] @ self._fitted(_STRENGTHS[best])
        return added

    def _learn(self, until: int) -> None:
        """Take in the examples before `until`, after seeing how well each strength foretells them.

        They are taken in small parts: strengths are judged often, and the products stay so
        small that the linear algebra library does not start threads, which would cost more.
        """
        while self.used < until:
            part = slice(self.used, min(until, self.used + _LEAST_ROWS))
            seen, came = self.seen[part], self.came[part]
            gram, mixed = seen.T @ seen, seen.T @ came
            if self.used >= _LEAST_ROWS:
                self.missed += self._missed(gram, mixed)
            self.gram += gram
            self.mixed += mixed
            self.used = part.stop

    def _missed(self, gram: NDArray[np.float64], mixed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Squared error per strength on examples with these products, less the level's own."""
        fits = [self._fitted(each) for each in _STRENGTHS]
        missed = [float((fit * (gram @ fit - 2 * mixed)).sum()) for fit in fits]
        return np.array([*missed, 0.0])

    def _fitted(self, strength: float) -> NDArray[np.float64]:
        held = self.gram + strength * self.used * np.eye(len(self.gram))
        return np.linalg.solve(held, self.mixed).astype(np.float64, copy=False)


FORECASTERS = (Ridge(),)
