"""A tenant's requests, per slot and one by one, drawn from the counts per second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.core.scenario import Trace

_SPLIT, _TIMES, _DRAWS = range(3)
"""Independent streams of random numbers."""


class TenantArrivals:
    """A tenant's requests, per slot and individually."""

    def __init__(self, trace: Trace, slot_s: float, seed: int, tenant: int) -> None:
        self._key = (seed, tenant)
        self.grain_s = min(1.0, slot_s)
        self._grains = self._split(trace, round(1 / self.grain_s))
        self._per_slot = round(slot_s / self.grain_s)

    def slots(self, start_s: float, end_s: float) -> NDArray[np.float64]:
        """Requests per slot from `start_s` to `end_s`, both on a slot boundary.

        A partial slot is cut.
        """
        grains = self._between(start_s, end_s)
        whole = len(grains) // self._per_slot * self._per_slot
        slots: NDArray[np.int64] = grains[:whole].reshape(-1, self._per_slot).sum(axis=1)
        return slots.astype(np.float64)

    def times(self, start_s: float, end_s: float) -> NDArray[np.float64]:
        """Sorted arrival times of the requests from `start_s` to `end_s`."""
        grains = self._between(start_s, end_s)
        random = self._random(_TIMES, start_s)
        gaps = random.standard_exponential(int(grains.sum()) + len(grains))
        return spread(grains, gaps, start_s, self.grain_s)

    def draws(self, start_s: float, requests: int) -> NDArray[np.float64]:
        """One random number per request from `start_s` on.

        The answer is right if it is below the accuracy.
        """
        return self._random(_DRAWS, start_s).random(requests)

    def _between(self, start_s: float, end_s: float) -> NDArray[np.int64]:
        return self._grains[round(start_s / self.grain_s) : round(end_s / self.grain_s)]

    def _split(self, trace: Trace, parts: int) -> NDArray[np.int64]:
        if parts == 1:
            return trace.counts
        shares = np.full(parts, 1 / parts)
        split: NDArray[np.int64] = self._random(_SPLIT, 0).multinomial(trace.counts, shares)
        return split.reshape(-1)

    def _random(self, stream: int, start_s: float) -> np.random.Generator:
        return np.random.default_rng([*self._key, stream, round(start_s / self.grain_s)])


def spread(
    counts: NDArray[np.int64], gaps: NDArray[np.float64], start_s: float, grain_s: float
) -> NDArray[np.float64]:
    """Sorted uniform times of requests.

    The n requests of a grain have n + 1 exponential gaps, scaled to its length.
    """
    times = np.empty(counts.sum(), dtype=np.float64)
    at = gap = 0
    for grain, count in enumerate(counts):
        passed = np.cumsum(gaps[gap : gap + count + 1])
        begin = start_s + grain * grain_s
        times[at : at + count] = begin + passed[:-1] / passed[-1] * grain_s
        at += count
        gap += count + 1
    return times
