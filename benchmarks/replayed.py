"""Durations and models of a simulated run as a live run had them."""

# ruff: noqa: ARG002 (implementations of the simulator's protocols)

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from migrator.control.events import RetrainingPlanned
from migrator.control.retraining import Phase, TenantRetraining
from migrator.control.tenant_state import TenantState, TrainingRoom
from migrator.core.problem import Holding, bare
from migrator.core.profiles import Curve
from migrator.simulation.durations import ProfileDurations, Removal


@dataclass(frozen=True)
class Training:
    """One retraining from its start to its end."""

    seconds: float
    sms: float


Key = tuple[object, ...]


@dataclass
class Samples:
    """Measured seconds by key, from the most specific key to the least specific.

    `take` returns the next unused sample of the first key that has one, in the order of
    measurement. When all are used, it draws a sample of the last key.
    """

    seed: int
    values: dict[Key, list[float]] = field(default_factory=dict)
    _next: dict[Key, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def add(self, seconds: float, *keys: Key) -> None:
        """Add a measured duration under each of the keys."""
        for key in keys:
            self.values.setdefault(key, []).append(seconds)

    def take(self, *keys: Key) -> float | None:
        """The next sample, or one drawn from the last key with samples; None if there is none."""
        for key in keys[:-1]:
            at = self._next.get(key, 0)
            values = self.values.get(key, ())
            if at < len(values):
                self._next[key] = at + 1
                return values[at]
        values = self.values.get(keys[-1], ())
        return float(self._random.choice(values)) if values else None


@dataclass
class MeasuredDurations:
    """Durations from the records of a live run. Steps that were never measured use the profile.

    `steps` keys are (step, window, holding), (step, window, tenant) and (step, tenant).
    """

    profile: ProfileDurations
    steps: Samples
    removals: dict[tuple[int, Holding], list[Removal]]
    """All attempts in order, by window and instance."""
    trainings: Mapping[tuple[str, int], Sequence[Training]]
    """By tenant and window, on one or more sizes."""
    swaps: Mapping[tuple[str, int], float]

    def plan_s(self, window: int) -> float:
        """The next one of that window, or one of any window."""
        return self.steps.take(("plan", window), ("plan",)) or 0.0

    def create_s(self, window: int, tenant: str, holding: Holding) -> float:
        """As measured; shares need no creation."""
        return self._step("create", window, tenant, holding, 0.0)

    def destroy(self, window: int, holding: Holding) -> Removal:
        """The removal of that instance in that window, including failed attempts."""
        attempts = self.removals.get((window, bare(holding)))
        if attempts:
            return attempts.pop(0)
        return Removal(self.steps.take(("destroy",)) or 0.0)

    def warm_s(self, window: int, tenant: str, holding: Holding) -> float:
        """Until the worker served."""
        otherwise_s = self.profile.warm_s(window, tenant, holding)
        return self._step("warm", window, tenant, holding, otherwise_s)

    def take_over_s(self, window: int, tenant: str, holding: Holding) -> float:
        """Until the router knew it."""
        return self._step("take_over", window, tenant, holding, 0.0)

    def stop_s(self, window: int, holding: Holding) -> float:
        """Until the process had exited."""
        return self.steps.take(("stop", window, bare(holding)), ("stop",)) or 0.0

    def training_start_s(self, window: int, tenant: str) -> float:
        """Zero: included in the retraining."""
        return 0.0

    def training_s(self, window: int, tenant: str, curve: Curve, sms: float) -> float | None:
        """The measured duration on the nearest size, scaled to other SMs by the curve."""
        measured = self.trainings.get((tenant, window))
        if not measured:
            return None
        nearest = min(measured, key=lambda training: abs(math.log(training.sms / sms)))
        return nearest.seconds * curve.at(sms) / curve.at(nearest.sms)

    def slower(self, window: int, tenant: str) -> float:
        """1: retrainings that were not measured take as long as the profile says."""
        return 1.0

    def swap_s(self, window: int, tenant: str) -> float:
        """The duration in that window, or else the tenant's median."""
        swap_s = self.swaps.get((tenant, window))
        if swap_s is None:
            own: Sequence[float] = [s for (name, _), s in self.swaps.items() if name == tenant]
            swap_s = float(np.median(own)) if own else 0.0
        return swap_s

    def _step(
        self, step: str, window: int, tenant: str, holding: Holding, otherwise_s: float
    ) -> float:
        seconds = self.steps.take(
            (step, window, bare(holding)), (step, window, tenant), (step, tenant)
        )
        return otherwise_s if seconds is None else seconds


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
        labelled = self.labelled(state.model.since, window)
        if here.estimate is not None:
            state.model.set_estimate(here.estimate, window)
        state.begin_window(window, labelled, here.believed, room)
        job = state.retraining
        if job is not None and job.phase is Phase.WAITING and here.slower is not None:
            seconds = state.training_s(state.samples(labelled))
            state.on(RetrainingPlanned(replace(job, seconds=seconds, slower=here.slower)))

    def finish(
        self, state: TenantState, job: TenantRetraining, now_s: float, swap_s: float
    ) -> None:
        """Serve the model once it is swapped in, if it was adopted in the live run."""
        made = self._at(job.window)
        if not made.adopted:
            return
        if made.judged is not None:
            state.model.adopt(None, made.judged)
        self._take_over(now_s + swap_s, job.window)

    def expected_below_first(self, job: TenantRetraining) -> float:
        """Nothing: live runs have one configuration."""
        return 0.0

    def labelled(self, first: int, window: int) -> int:
        """The labels of the live run."""
        before = self.labelled_before if first < 0 else 0
        return before + sum(row.labelled for row in self.windows[max(0, first) : window])

    def training_s(self, state: TenantState, window: int, most_samples: int) -> Curve:
        """The duration by the profile."""
        labelled = self.labelled(state.model.since, window)
        return state.training_s(min(most_samples, state.samples(labelled)))

    def end_estimate(self, state: TenantState, window: int) -> None:
        """Do nothing: `plan` takes the estimates of the live run."""

    def _take_over(self, at_s: float, trained_for: int) -> None:
        self._trained_for = trained_for
        self.accuracy = self._measured(self._window, trained_for)
        self.switches.append((at_s, self.accuracy))

    def _at(self, window: int) -> MeasuredWindow:
        return self.windows[min(window, len(self.windows) - 1)]

    def _with_requests(self, window: int) -> Mapping[int, float]:
        """The accuracies of this window, or of the next or last one in which requests came."""
        following, earlier = self.windows[window:], self.windows[:window][::-1]
        measured = (row.accuracy for row in (*following, *earlier) if row.accuracy)
        return next(measured, {self._trained_for: self.accuracy})

    def _measured(self, window: int, trained_for: int) -> float:
        """The accuracy on the window's requests.

        If that model did not serve in the window, scale its accuracy in the window before by the
        change of the other models, or use that of the newest model that served.
        """
        here = self._with_requests(window)
        if trained_for in here:
            return here[trained_for]
        before = self._at(window - 1).accuracy if window > 0 else {}
        both = [key for key in here if key in before and before[key] > 0]
        if trained_for in before and both:
            ratios = [here[key] / before[key] for key in both]
            return min(1.0, before[trained_for] * sum(ratios) / len(ratios))
        return here[max(here)]
