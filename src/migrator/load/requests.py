"""The requests of a load: when each is sent, and which labelled sample it asks for.

Times are drawn from the traces as in the simulator. Samples are those of the window, every class
equally likely. Models are pre-trained on the benchmark's first scenario, so window 0 shows its
second one; after the last scenario the data stays the same. If answers are labelled, a sample that
a model may have learned in an earlier window is not used again in a later one. If a window's
training samples are uploaded before it, requests use held-out samples only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.scenario import Scenario
from migrator.learn.benchmarks.benchmark import Benchmark, Material
from migrator.learn.samples import Samples, concatenate
from migrator.workload.tenant_arrivals import TenantArrivals

_DEALT, _ASKED, _UPLOADED = 10, 11, 12
"""Random streams that must differ from those of the benchmarks."""

Rows = NDArray[np.intp]
REFUSED = {429: "queue full", 503: "no instance ready"}
GIVEN_UP = 504


class RequestSamples:
    """A benchmark's samples as requests, window by window."""

    def __init__(
        self, benchmark: Benchmark, material: Material, seed: int, *, held_out: bool = False
    ) -> None:
        """`held_out`: ask only for held-out samples; the others are uploaded to train on."""
        self._benchmark, self._seed, self._held_out = benchmark, seed, held_out
        self._every = concatenate((material.train, material.held_out))
        self._learned = np.arange(len(self._every)) < len(material.train)
        """Which samples models may have been trained on."""

    def scenario(self, window: int) -> int:
        return min(window + 1, self._benchmark.scenarios - 1)

    @property
    def samples(self) -> Samples:
        return self._every

    def rows(self, window: int, count: int) -> Rows:
        """The samples of a window's `count` requests, in order."""
        scenario = self.scenario(window)
        classes = self._benchmark.classes_by(scenario)
        draw = np.random.default_rng((self._seed, _ASKED, window))
        labels = draw.integers(classes, size=count)
        rows = np.empty(count, dtype=np.intp)
        for label in range(classes):
            places = np.flatnonzero(labels == label)
            pool = draw.permutation(self._pool(scenario, label))
            rows[places] = np.resize(pool, len(places))
        return rows

    def training_rows(self, window: int, since: int | None) -> Rows:
        """The samples to train on that are new in a window, shuffled.

        `since`: the window whose samples are known; None: only those of the first scenario are.
        """
        scenario, learned_scenario = (
            self.scenario(window),
            0 if since is None else self.scenario(since),
        )
        arrives = self._every.arrives
        new = (arrives > learned_scenario) & (arrives <= scenario) & self._learned
        if self._benchmark.drifts:
            new &= arrives == scenario  # it shows all classes as they look now
        draw = np.random.default_rng((self._seed, _UPLOADED, window))
        return draw.permutation(np.flatnonzero(new))

    def _pool(self, scenario: int, label: int) -> Rows:
        """The samples of a class that a scenario may use."""
        of_label = self._every.labels == label
        if self._held_out:
            of_label &= ~self._learned
        if self._benchmark.drifts:
            return np.flatnonzero(of_label & (self._every.arrives == scenario))
        if self._held_out:
            return np.flatnonzero(of_label)
        first = max(1, self._benchmark.scenario_of(label))
        if self._benchmark.scenario_of(label) == 0:
            of_label &= ~self._learned  # models are pre-trained on the others
        # the class looks the same in every window, so each window gets its own part of the samples
        order = np.random.default_rng((self._seed, _DEALT, label)).permutation(
            np.flatnonzero(of_label)
        )
        parts = self._benchmark.scenarios - first
        return order[scenario - first :: parts] if len(order) >= parts else order


@dataclass(frozen=True, eq=False)
class Schedule:
    """Requests in the order of their due times, by column."""

    due_s: NDArray[np.float64]
    """Seconds since the beginning of the first window."""
    tenant: NDArray[np.int64]
    """Index among the tenants of the load."""
    window: NDArray[np.int64]
    """Window of the run, from 0."""
    row: NDArray[np.intp]
    """Index of the sample."""

    def __len__(self) -> int:
        return len(self.due_s)

    def since(self, second: float) -> Schedule:
        later = self.due_s >= second
        return Schedule(self.due_s[later], self.tenant[later], self.window[later], self.row[later])


def times_s(scenario: Scenario, index: int, windows: int) -> NDArray[np.float64]:
    """Due times of a tenant's requests in the first `windows` windows."""
    tenant, window_s = scenario.tenants[index], scenario.window_s
    arrivals = TenantArrivals(tenant.trace, scenario.slot_s, scenario.seed, index)
    parts = []
    for window in range(windows):
        begin_s = tenant.offset_s + window * window_s
        # window by window like the simulator, because the drawn times depend on the start
        parts.append(arrivals.times(begin_s, begin_s + window_s) - tenant.offset_s)
    return np.concatenate(parts)


def schedule(
    scenario: Scenario,
    tenants: Sequence[int],
    questions: Sequence[RequestSamples],
    first: int,
    windows: int,
) -> Schedule:
    """All requests of some tenants. `first`: the server's number of the first window."""
    parts = []
    for place, (index, asked) in enumerate(zip(tenants, questions, strict=True)):
        due_s = times_s(scenario, index, windows)
        window = (due_s // scenario.window_s).astype(np.int64)
        row = np.concatenate(
            [asked.rows(first + number, int((window == number).sum())) for number in range(windows)]
        )
        parts.append((due_s, np.full(len(due_s), place), window, row))
    due_s, tenant, window, row = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(due_s, kind="stable")
    return Schedule(due_s[order], tenant[order], window[order], row[order])
