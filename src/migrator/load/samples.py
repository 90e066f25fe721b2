"""What `migrator load` asks: labelled samples of the window that is now, every class as likely.

The benchmark's first scenario is what models are pre-trained on, so window 0 shows its second
one; after the last scenario its data stays as it is. A sample that a model may have learned from
in an earlier window is not asked again in a later one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.learn.benchmarks.benchmark import Benchmark, Material
from migrator.learn.samples import Samples

_DEALT, _ASKED = 10, 11
"""Streams of random numbers that must not meet those of the benchmarks."""

Rows = NDArray[np.intp]


class Questions:
    """A benchmark's samples as requests, window by window."""

    def __init__(self, benchmark: Benchmark, material: Material, seed: int) -> None:
        self._benchmark, self._seed = benchmark, seed
        self._every = material.train.joined(material.held_out)
        self._learned = np.arange(len(self._every)) < len(material.train)
        """Which samples were there to be trained on."""

    def scenario(self, window: int) -> int:
        """The benchmark's scenario that a window shows."""
        return min(window + 1, self._benchmark.scenarios - 1)

    @property
    def samples(self) -> Samples:
        """All that can be asked."""
        return self._every

    def rows(self, window: int, count: int) -> Rows:
        """Which samples a window's requests ask, so many, in order."""
        scenario = self.scenario(window)
        classes = (scenario + 1) * self._benchmark.classes_each
        draw = np.random.default_rng((self._seed, _ASKED, window))
        labels = draw.integers(classes, size=count)
        rows = np.empty(count, dtype=np.intp)
        for label in range(classes):
            places = np.flatnonzero(labels == label)
            pool = draw.permutation(self._pool(scenario, label))
            rows[places] = np.resize(pool, len(places))
        return rows

    def _pool(self, scenario: int, label: int) -> Rows:
        """The samples of a class that a scenario may show."""
        own = self._every.labels == label
        if self._benchmark.drifts:
            return np.flatnonzero(own & (self._every.arrives == scenario))
        first = max(1, self._benchmark.scenario_of(label))
        if self._benchmark.scenario_of(label) == 0:
            own &= ~self._learned  # models are pre-trained on the others
        # the class looks the same in every window, so each gets a part that nobody else has
        order = np.random.default_rng((self._seed, _DEALT, label)).permutation(np.flatnonzero(own))
        parts = self._benchmark.scenarios - first
        return order[scenario - first :: parts] if len(order) >= parts else order
