"""Short-term forecast: predicts the next 30 s from the last few, for replanning inside a window.

Bursts cannot be seen a window ahead, but most arrivals are correlated over seconds. The forecast
of a slot is the last window's mean plus a weighted sum of how far means over short spans of the
recent past are from it. The weights are fitted to the history by least squares, one set per slot
ahead, and fall to zero as the correlation does. Noise around a level and a level that has moved
need different weights, so moments at which the recent past stands out of the noise are fitted
apart. Scenarios are what followed the most similar moments, whole stretches of it, so arrivals
that come in bursts or not at all stay so. For a whole window it is close to `last-mean`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import SCENARIOS, Counts, with_mean, without_gaps
from migrator.forecast.simple import means_before

Floats = NDArray[np.float64]

SPANS = (1, 3, 10, 30, 60)
"""Slots over which the recent past is averaged."""
GATE = 2
"""Place of the span whose mean decides whether the recent past stands out of the noise."""
STANDS_OUT = 2.5
"""Standard deviations of the noise beyond which the level is taken to have moved."""

MEMORY_WINDOWS = 100
"""Windows of history that are used. Bursts are rare, and a fit needs several of them."""
_MOST_ORIGINS = 2000
"""Most origins of a fit; of a longer history only every n-th moment is one."""
_OWN = 100.0
"""Weight, in origins, of the fit to all origins when those that are alike are fitted apart."""
_SHRINK = 10.0
"""Weight, in origins, of the ridge penalty: with a short history the weights stay near zero."""
_MOMENTS = 16
"""Moments at which `skill` compares the forecast with the last window's mean."""
NEAREST = 4 * SCENARIOS
"""Scenarios. Many, because neighbours in time are nearly the same moment, and a plan for few
scenarios follows their noise."""
_SOON = 10
"""Slots that count twice when moments are compared."""
_MOST_RATIO = 4.0
"""Most by which a scenario is scaled from the level at its moment to that of now."""
_FLOOR = 0.05
"""Least scale, as a part of the mean of the history."""


class Skill(NamedTuple):
    """How much better a nowcast was than the mean of the last window."""

    share: float
    """Share of the squared error that it removed; below 0 where it was worse."""
    error: float
    """Standard error of the share."""


class Nowcast:
    """Least squares on the last seconds."""

    name = "nowcast"
    summary = "the recent seconds, fading into the mean of the last window"

    def ahead(self, history: Counts, slots: int, window_slots: int) -> Floats:
        """Scenarios whose mean is the fit."""
        if len(history) == 0 or slots == 0:
            return np.ones((NEAREST, slots))
        seen = without_gaps(history)[-MEMORY_WINDOWS * window_slots :]
        origins = _origins(len(seen), slots, window_slots)
        now, then = _features(seen, origins, window_slots)
        now = now.within(then)
        if len(origins) < 2 * len(SPANS):
            return np.full((NEAREST, slots), max(0.0, float(now.level[0])))
        received = seen[origins[:, None] + np.arange(slots)]
        alike = then.stands_out == now.stands_out[0]
        weights = _fit(then, received - then.level[:, None], alike)
        point, predicted = now.with_weights(weights)[0], then.with_weights(weights)
        near = _nearest(point / now.scale, predicted / then.scale[:, None], alike)
        growth = np.clip(now.scale / then.scale[near], 1 / _MOST_RATIO, _MOST_RATIO)
        # not widened for the interval's sake: planning asks for E[min(received, capability)]
        return with_mean(received[near] * growth[:, None], point)

    def skill(self, history: Counts, slots: int, window_slots: int) -> Skill:
        """Share of the squared error of the last window's mean that the nowcast removes.

        Both are compared with the requests of the next `slots` slots that came, at moments of the
        last two windows.
        """
        history = without_gaps(history)
        last = len(history) - slots
        first = max(last - 2 * window_slots, window_slots)
        if last <= first:
            return Skill(0.0, 0.0)
        errors = np.empty((_MOMENTS, 2))
        for at, now in enumerate(np.linspace(first, last, _MOMENTS).astype(int)):
            before, received = history[:now], float(history[now : now + slots].sum())
            level = float(before[-window_slots:].mean()) * slots
            predicted = float(self.ahead(before, slots, window_slots).mean(axis=0).sum())
            errors[at] = (level - received) ** 2, (predicted - received) ** 2
        of_mean, of_nowcast = errors.T
        if not of_mean.any():
            return Skill(0.0, 0.0)
        share = 1 - of_nowcast.sum() / of_mean.sum()
        left = (1 - share) * of_mean - of_nowcast
        error = float(left.std(ddof=1)) * _MOMENTS**0.5 / float(of_mean.sum())
        return Skill(float(share), error)


class _Features(NamedTuple):
    """The inputs of the fit at some origins."""

    level: Floats
    """The last window's mean."""
    scale: Floats
    """The level, but at least `_FLOOR` of the mean: the variance of the noise grows with it."""
    deviations: Floats
    """Differences of the means over `SPANS` from the level."""
    stands_out: NDArray[np.bool_]

    def with_weights(self, weights: Floats) -> Floats:
        """Per origin the forecast of the slots ahead."""
        predicted: Floats = np.maximum(self.level[:, None] + self.deviations @ weights, 0.0)
        return predicted

    def within(self, others: _Features) -> _Features:
        """With deviations clipped to the range of `others`, each relative to its scale."""
        if len(others.scale) == 0:
            return self
        relative = others.deviations / others.scale[:, None]
        low, high = relative.min(axis=0), relative.max(axis=0)
        wide = self.scale[:, None]
        return self._replace(deviations=np.clip(self.deviations, wide * low, wide * high))

    def at(self, place: slice) -> _Features:
        """The inputs at some of the origins."""
        return _Features._make(column[place] for column in self)


def _origins(length: int, slots: int, window_slots: int) -> NDArray[np.intp]:
    """Moments of the history with something before them and `slots` slots after them."""
    first = max(1, min(window_slots, length // 3))
    stride = max(1, -(-(length - slots + 1 - first) // _MOST_ORIGINS))
    return np.arange(length - slots, first - 1, -stride, dtype=np.intp)[::-1]


def _features(
    seen: Counts, origins: NDArray[np.intp], window_slots: int
) -> tuple[_Features, _Features]:
    """The inputs now, and at the origins."""
    means = means_before(seen, np.append(origins, len(seen)), np.array([window_slots, *SPANS]))
    level = means[:, 0]
    scale = np.maximum(level, _FLOOR * float(seen.mean()) + 1e-9)
    deviations = means[:, 1:] - level[:, None]
    bound = STANDS_OUT * np.sqrt(scale * _noise(seen, float(seen.mean())) / SPANS[GATE])
    features = _Features(level, scale, deviations, np.abs(deviations[:, GATE]) > bound)
    return features.at(slice(-1, None)), features.at(slice(0, -1))


def _noise(seen: Counts, mean: float) -> float:
    """Variance of a slot over its rate, by what changes from one slot to the next."""
    changes = np.diff(seen) ** 2 / 2
    return float(changes.mean()) / max(mean, 1e-9) if len(changes) else 0.0


def _nearest(point: Floats, predicted: Floats, alike: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The origins whose forecasts are nearest to that of now, in the order of time."""
    apart = predicted - point
    np.abs(apart, out=apart)
    far = apart[:, :_SOON].mean(axis=1) + apart.mean(axis=1)
    # origins that are not alike come after all that are
    far = np.where(alike, far, far + far.max() + 1.0)
    first = np.sort(np.argsort(far, kind="stable")[:NEAREST])
    return first[np.linspace(0, len(first) - 1, NEAREST).astype(np.intp)]


def _fit(then: _Features, errors: Floats, alike: NDArray[np.bool_]) -> Floats:
    """Per slot ahead the weights of the deviations: fitted to origins alike, and drawn towards the
    weights fitted to all origins."""
    # in units of the noise, so that bursts do not outweigh everything else
    heft = 1 / np.sqrt(then.scale)[:, None]
    seen, wanted = then.deviations * heft, errors * heft
    gram, mixed = seen.T @ seen / len(seen), seen.T @ wanted / len(seen)
    spread = np.trace(gram) / len(gram)
    ridge = (_SHRINK / len(seen) * spread + 1e-12) * np.eye(len(gram))
    of_all = np.linalg.solve(gram + ridge, mixed)
    own, own_wanted = seen[alike], wanted[alike]
    weights: Floats = np.linalg.solve(
        own.T @ own + _OWN * (gram + ridge), own.T @ own_wanted + _OWN * (gram + ridge) @ of_all
    )
    return weights


FORECASTERS = (Nowcast(),)
