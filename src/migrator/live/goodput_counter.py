"""Goodput of every tenant as a counter, with the accuracy that labels show or models promise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from migrator.control.tenant_state import FEWEST_LABELS, TenantState
from migrator.control.window_clock import WindowClock
from migrator.live.labels import Labels
from migrator.serving.queue import Counts


class Goodput:
    """Goodput of all tenants since the daemon started, as a counter that never decreases.

    It is the requests answered in time, times the share of correct answers. A window that is over
    counts as in the records: by its labels, however few. Without labels every answer counts by the
    accuracy that its model had at the time.
    """

    def __init__(
        self,
        counts: Mapping[str, Counts],
        tenants: Mapping[str, TenantState],
        clock: WindowClock,
        labels: Labels,
    ) -> None:
        self._counts, self._tenants, self._clock, self._labels = counts, tenants, clock, labels
        # tenants come and go while the daemon runs
        self._accuracy: dict[str, float] = {}
        self._assumed: defaultdict[str, float] = defaultdict(float)
        """Correct answers of this window by the accuracies of the models that gave them."""
        self._assumed_of: defaultdict[str, int] = defaultdict(int)
        """Answers in time that are counted there, since the daemon started."""
        self._settled: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        """Both as they were when the window began or the last accuracy was measured."""
        self._before: defaultdict[str, float] = defaultdict(float)
        self._in_time: defaultdict[str, int] = defaultdict(int)
        self._highest: defaultdict[str, float] = defaultdict(float)

    def measured(self, tenant: str) -> float | None:
        """Accuracy by the labels of this window; None if no label has an answer to compare with."""
        return self._labels.accuracy(tenant, self._clock.number)

    def correct(self, tenant: str, fewest: int = FEWEST_LABELS) -> float:
        """The share of correct answers in this window: by its labels if there are `fewest`, else by
        the accuracies of the models that answered."""
        measured = self._labels.accuracy(tenant, self._clock.number, fewest)
        if measured is not None:
            return measured
        self._assume(tenant)
        in_window = self._assumed_of[tenant] - self._in_time[tenant]
        return self._assumed[tenant] / in_window if in_window else self._accuracy[tenant]

    def correct_now(self, tenant: str) -> float:
        """The share of correct answers in this second: by the window's labels, else the accuracy
        of the model that serves."""
        self._assume(tenant)
        measured = self._labels.accuracy(tenant, self._clock.number, FEWEST_LABELS)
        return self._accuracy[tenant] if measured is None else measured

    def settle(self, tenant: str, accuracy: float) -> None:
        """Count the answers of the model that served until now by this accuracy, which a
        retraining measured on the new data."""
        self._assume(tenant)
        correct, answers = self._settled[tenant]
        correct += (self._assumed_of[tenant] - answers) * accuracy
        self._assumed[tenant] = correct
        self._settled[tenant] = (correct, self._assumed_of[tenant])

    def _assume(self, tenant: str) -> None:
        """Count the answers since the last call by the model's accuracy; of a removed tenant by
        the last known one."""
        if tenant in self._tenants:
            self._accuracy[tenant] = self._tenants[tenant].accuracy
        in_time = self._counts[tenant].total.in_time
        answers = in_time - self._assumed_of[tenant]
        self._assumed[tenant] += answers * self._accuracy[tenant]
        self._assumed_of[tenant] = in_time

    def end_window(self) -> None:
        """Close the window. Call this before the clock advances."""
        for tenant in self._tenants:
            self._before[tenant] = self._now(tenant, fewest=1)
            self._in_time[tenant] = self._counts[tenant].total.in_time
            self._assumed[tenant], self._assumed_of[tenant] = 0.0, self._in_time[tenant]
            self._settled[tenant] = (0.0, self._in_time[tenant])

    def so_far(self, tenant: str) -> float:
        """The goodput so far. It stays constant while labels show less than was reported before."""
        self._highest[tenant] = max(self._highest[tenant], self._now(tenant))
        return self._highest[tenant]

    def _now(self, tenant: str, fewest: int = FEWEST_LABELS) -> float:
        in_window = self._counts[tenant].total.in_time - self._in_time[tenant]
        return self._before[tenant] + in_window * self.correct(tenant, fewest)
