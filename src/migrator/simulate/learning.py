"""The model of a simulated tenant: its accuracy in every window, and the effect of retraining.

The data of each window differs from the last window's. In a scenario, a model's accuracy falls by
the ratio given for the window, however long ago it was retrained. A `MeasuredModel` uses the
accuracies of a live run instead.
"""

# ruff: noqa: ARG002 (several implementations of one protocol)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from migrator.control.tenant_state import (
    FEWEST_LABELS,
    Phase,
    Retraining,
    TenantState,
    TrainingRoom,
)
from migrator.core.profiles import Curve
from migrator.core.scenario import Drift


class Model(Protocol):
    """The model that serves a tenant."""

    accuracy: float
    """Accuracy on this window's data."""
    switches: list[tuple[float, float]]
    """Times in this window and the accuracy from each on; the first is the window's start."""

    def begin(self, now_s: float, window: int) -> None:
        """Begin a window with other data."""
        ...

    def plan(self, state: TenantState, window: int, room: TrainingRoom, *, known: bool) -> None:
        """Set the known accuracy of the model and the retraining of a window.

        `known`: the policy sees the true accuracy after the retraining.
        """
        ...

    def finish(self, state: TenantState, job: Retraining, now_s: float, swap_s: float) -> None:
        """End a retraining. Its model serves after `swap_s`, unless it is refused."""
        ...

    def labelled(self, first: int, window: int) -> int:
        """Number of labels that a retraining in a window can learn, if `first` is the first window
        whose labels are not learned."""
        ...

    def training_s(self, state: TenantState, window: int, most_samples: int) -> Curve:
        """Duration over SMs of the retraining in a window."""
        ...

    def end_estimate(self, state: TenantState, window: int) -> None:
        """Set the estimate of the retraining in a window."""
        ...


class DriftingModel:
    """A model with the accuracies of the scenario."""

    def __init__(self, drifts: tuple[Drift, ...]) -> None:
        self._drifts = drifts
        self._window = -1
        self._trained_on = -1
        """The window whose data it was trained on."""
        self.accuracy = 1.0
        self.switches: list[tuple[float, float]] = []

    def begin(self, now_s: float, window: int) -> None:
        """Lower the accuracy, whether or not the model was retrained in the window before."""
        drift = self._drift(window)
        if drift is not None and (window == 0 or self._trained_on == window - 1):
            self.accuracy = drift.accuracy_pre
        else:
            self.accuracy = min(1.0, self.accuracy * self._fading(window))
        self._window = window
        self.switches = [(now_s, self.accuracy)]

    def plan(self, state: TenantState, window: int, room: TrainingRoom, *, known: bool) -> None:
        """Set the retraining. A running one continues; a waiting one is dropped, as its data is
        old."""
        state.accuracy = self.accuracy
        if state.retraining is not None and state.retraining.phase is Phase.RUNNING:
            return
        drift, state.retraining = self._drift(window), None
        if drift is not None and drift.seconds is not None:
            expected = drift.accuracy_post if known else state.expected_accuracy(window)
            state.retraining = Retraining(window, drift.seconds, state.slower, expected)

    def finish(self, state: TenantState, job: Retraining, now_s: float, swap_s: float) -> None:
        """Serve the retrained model. If it outlasted its window, it has lost accuracy in every
        window since."""
        after = self._drifts[job.window].accuracy_post
        for window in range(job.window + 1, self._window + 1):
            after = min(1.0, after * self._fading(window))
        self._trained_on = job.window
        self.accuracy = state.accuracy = after
        self.switches.append((now_s + swap_s, after))

    def labelled(self, first: int, window: int) -> int:
        """Enough, if the window's data can be learned."""
        drift = self._drift(window)
        return FEWEST_LABELS if drift is not None and drift.seconds is not None else 0

    def training_s(self, state: TenantState, window: int, most_samples: int) -> Curve:
        """The duration that the scenario gives for the window."""
        seconds = self._drifts[window].seconds
        assert seconds is not None, "estimated although there is nothing to retrain on"
        return seconds

    def end_estimate(self, state: TenantState, window: int) -> None:
        """Set the estimate that the scenario gives for the window."""
        drift = self._drift(window)
        if drift is not None:
            state.estimate, state.estimated_for = drift.accuracy_expected, window

    def _drift(self, window: int) -> Drift | None:
        return self._drifts[window] if 0 <= window < len(self._drifts) else None

    def _fading(self, window: int) -> float:
        drift, before = self._drift(window), self._drift(window - 1)
        if drift is None or before is None:
            return 1.0
        return drift.accuracy_pre / before.accuracy_post if before.accuracy_post else 1.0


@dataclass(frozen=True)
class MeasuredWindow:
    """Measurements of a tenant's model in one window of a live run."""

    accuracy: Mapping[int, float]
    """Accuracy on this window's requests, by the window for which the model was last retrained; key
    -1: the model at the start of the run."""
    believed: float | None
    """The accuracy that the controller assumed when the window began."""
    estimate: float | None
    """Expected accuracy after a retraining."""
    labelled: int
    """Labels received in this window."""
    adopted: bool
    """Whether the model of this window's retraining served afterwards."""
    judged: float | None
    """Accuracy of that model on held-out labels."""
    slower: float | None = None
    """Planned duration of that retraining divided by the profile's duration for all labels not
    learned yet; None if unknown."""


@dataclass
class MeasuredModel:
    """A model with the accuracies of a live run."""

    windows: tuple[MeasuredWindow, ...]
    labelled_before: int = 0
    """Labels received before the first window."""
    accuracy: float = 1.0
    switches: list[tuple[float, float]] = field(default_factory=list)
    _window: int = -1
    _trained_for: int = -1

    def begin(self, now_s: float, window: int) -> None:
        """Switch to the accuracy on the requests of another window."""
        self._window = window
        self.accuracy = self._measured(window, self._trained_for)
        self.switches = [(now_s, self.accuracy)]

    def plan(self, state: TenantState, window: int, room: TrainingRoom, *, known: bool) -> None:
        """Plan the retraining on the labels not learned yet, as the daemon does."""
        here = self._at(window)
        labelled = self.labelled(state.since, window)
        if here.estimate is not None:
            state.estimate, state.estimated_for = here.estimate, window
        state.begin(window, labelled, here.believed, room)
        job = state.retraining
        if job is not None and job.phase is Phase.WAITING and here.slower is not None:
            job.seconds, job.slower = state.live.training_s(state.learned(labelled)), here.slower

    def finish(self, state: TenantState, job: Retraining, now_s: float, swap_s: float) -> None:
        """Serve the model once it is swapped in, if it was adopted in the live run."""
        made = self._at(job.window)
        if not made.adopted:
            return
        if made.judged is not None:
            state.accuracy = made.judged
        self._take_over(now_s + swap_s, job.window)

    def labelled(self, first: int, window: int) -> int:
        """The labels of the live run."""
        before = self.labelled_before if first < 0 else 0
        return before + sum(each.labelled for each in self.windows[max(0, first) : window])

    def training_s(self, state: TenantState, window: int, most_samples: int) -> Curve:
        """The duration by the profile."""
        labelled = self.labelled(state.since, window)
        return state.live.training_s(min(most_samples, state.learned(labelled)))

    def end_estimate(self, state: TenantState, window: int) -> None:
        """Do nothing: `plan` takes the estimates of the live run."""

    def _take_over(self, at_s: float, trained_for: int) -> None:
        self._trained_for = trained_for
        self.accuracy = self._measured(self._window, trained_for)
        self.switches.append((at_s, self.accuracy))

    def _at(self, window: int) -> MeasuredWindow:
        return self.windows[min(window, len(self.windows) - 1)]

    def _measured(self, window: int, trained_for: int) -> float:
        """The accuracy on the window's requests.

        If that model did not serve in the window, scale its accuracy in the window before by the
        change of the other models, or use that of the newest model that served.
        """
        here = self._at(window).accuracy
        if trained_for in here:
            return here[trained_for]
        before = self._at(window - 1).accuracy if window > 0 else {}
        both = [each for each in here if each in before and before[each] > 0]
        if trained_for in before and both:
            ratios = [here[each] / before[each] for each in both]
            return min(1.0, before[trained_for] * sum(ratios) / len(ratios))
        return here[max(here)]
