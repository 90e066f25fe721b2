"""The state of one tenant: its request history, model version and retraining."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from migrator.control.gain_lifetime import GainLifetime
from migrator.core.catalogue import Board
from migrator.core.problem import Holding
from migrator.core.profiles import Curve
from migrator.core.scenario import ServedTenant
from migrator.policies.policy import RetrainingState, TenantView

if TYPE_CHECKING:
    # a policy's process imports this module and never reads a scenario
    from migrator.workload.live import LiveTenant

FEWEST_LABELS = 20
"""Labels below which a window is not worth learning from."""
_HISTORY_SLOTS = 7200
_NOTHING_LEARNED = -1
"""The first window whose labels are not learned, if none are: some may come before window 0."""
_FOLLOWED, _FASTEST, _SLOWEST = 0.5, 0.5, 10.0
"""Smoothing factor for measured durations, and the limits of their ratio to the profile."""
_DEVIATION, _LATE = 0.1, 0.84
"""Relative standard deviation of a duration before any is measured, and the number of standard
deviations that four of five retrainings stay below."""
_USUAL_GAIN = 0.3
"""Share of the errors that a retraining is assumed to remove before any is measured."""
_WINDOW_PART = 0.8
"""Share of a window that all retrainings may take, one after the other."""
_SMALLER, _SMALLEST = 0.7, 0.1
"""Factor by which a retraining shrinks for every window it waited in vain, and the smallest
size."""
_DOUBTED = 3
"""Windows in a row without a retraining after which an estimate without a gain is ignored."""


class ModelVersion(Protocol):
    """A version of a tenant's model, as planning sees it."""

    @property
    def number(self) -> int:
        """The version number, from 1."""
        ...

    @property
    def accuracy(self) -> float | None:
        """Accuracy on held-out labels; None if unknown."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """Details of how the version was made."""
        ...


class Phase(StrEnum):
    """The phase of a window's retraining."""

    NONE = "none"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True)
class TrainingRoom:
    """Limits of a retraining: seconds, on an instance with this number of SMs."""

    sms: float
    seconds: float

    @classmethod
    def of(cls, board: Board, tenants: Sequence[TenantState], window_s: float) -> TrainingRoom:
        """Limits for these tenants.

        The instance is the largest one beside the smallest instances of all tenants. Every tenant
        gets an equal part of the window, so that all retrainings fit one after the other.
        """
        left = board.compute_slices - sum(each.live.service.min_gpcs for each in tenants)
        sizes = [each for each in board.sizes if each <= left] or board.sizes[:1]
        return cls(board.sms_of(sizes[-1]), _WINDOW_PART * window_s / max(1, len(tenants)))


@dataclass
class Retraining:
    """A retraining on the labels of earlier windows."""

    window: int
    """The retraining learns from windows before this one."""
    seconds: Curve
    """Duration by SMs, from the profile."""
    slower: float
    """Measured duration divided by the profile's duration."""
    expected: float
    phase: Phase = Phase.WAITING
    progress: float = 0.0
    on: Holding | None = None
    since: int = 0
    """The first window that it learns from."""
    labelled: int = 0
    """Labels that were not learned yet when it was planned."""
    most_samples: int | None = None
    """Maximum number of training samples; None for all."""
    fixed_s: float = 0.0
    """Measured seconds that every retraining takes, however small: its duration is these and
    `slower` times the profile's."""

    @property
    def planned_s(self) -> Curve:
        """Expected duration by SMs."""
        return self.seconds.scaled(self.slower).raised(self.fixed_s)


@dataclass
class TenantState:
    """A tenant's state between requests."""

    live: LiveTenant
    history: NDArray[np.float64]
    """Requests per slot, beginning with the scenario's history."""
    version: Any = None
    accuracy: float = 1.0
    """Accuracy of the serving model on the newest labels."""
    overhead_s: float = 0.0
    retraining: Retraining | None = None
    estimate: float | None = None
    """Expected accuracy after the next retraining."""
    estimated_for: int = 0
    """The window of that retraining."""
    judged: float | None = None
    """Accuracy of the serving model on the labels of the estimate, when it was made."""
    began: int = _NOTHING_LEARNED
    """The window that began last."""
    answers_labelled: bool = False
    """Whether labels of answers gave the accuracy with which it began."""
    replayed: int = 0
    """Samples of earlier windows that the next retraining replays."""
    past: list[Any] = field(default_factory=list)
    slower: float = 1.0
    """Measured duration of retrainings divided by the profile's duration."""
    fixed_s: float = 0.0
    """Measured seconds of a retraining that its samples do not change."""
    variance: float = _DEVIATION**2
    """Of that ratio, relative to its square."""
    gain: GainLifetime = field(default_factory=GainLifetime)
    removed: float = _USUAL_GAIN
    """Share of the errors that retrainings removed."""
    profile_s: float | None = None
    """Duration of the last window's retraining by the profile."""
    since: int = _NOTHING_LEARNED
    """The first window whose labels the model has not learned."""
    missed: int = 0
    """Windows in a row that ended with a possible retraining still waiting."""
    left_out: bool = False
    """The plan leaves the waiting retraining out although it would fit."""
    skipped: int = 0
    """Windows in a row for which the plan left the retraining out."""
    fruitless: int = 0
    """Number of labels with which the last retraining found no samples. The next one needs more."""
    drained: bool = False
    """The tenant accepts no requests, so nothing is planned for it."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.live.name

    @property
    def planned(self) -> bool:
        """Whether plans include the tenant. A drained tenant is included only while it is
        retrained."""
        return not self.drained or self.is_retraining

    @property
    def is_retraining(self) -> bool:
        """Whether its retraining runs."""
        return self.retraining is not None and self.retraining.phase is Phase.RUNNING

    def goes_on_from(self, version: ModelVersion) -> None:
        """Set the serving version. Everything received since it was made is to be learned."""
        self.version, self.since = version, int(version.about.get("window", _NOTHING_LEARNED))
        self.slower = float(version.about.get("slower", self.slower))
        self.fixed_s = float(version.about.get("fixed_s", self.fixed_s))
        if version.accuracy is not None:
            self.accuracy = version.accuracy

    def saw(self, slot: float) -> None:
        """Append a slot with its number of requests to the history. Slots of a drained tenant are
        skipped, because they say nothing about its demand."""
        if self.drained:
            return
        self.history = np.append(self.history, slot)[-_HISTORY_SLOTS:]

    def begin(self, window: int, labelled: int, accuracy: float | None, room: TrainingRoom) -> None:
        """Begin a window in which `labelled` labels are not learned yet.

        `accuracy`: of the model on the labels of the last window; None if there were none.
        """
        self.began, self.answers_labelled = window, accuracy is not None
        if accuracy is None and self._is_estimate_valid(window):
            accuracy = self.judged  # samples were uploaded, and no answers were labelled
        if accuracy is not None:
            self.accuracy = accuracy
        if self.is_retraining:
            return  # it continues; later labels are learned afterwards if that pays off
        self.retraining = None
        if self.since >= self.estimated_for:
            self.estimate = None  # its labels are learned
        if labelled >= max(FEWEST_LABELS, self.fruitless + 1):
            most = self.most_samples(room)
            self.retraining = Retraining(
                window,
                self.live.training_s(min(most, self.learned(labelled))),
                self.slower,
                self.expected_accuracy(window),
                since=self.since,
                labelled=labelled,
                most_samples=most,
                fixed_s=self.fixed_s,
            )

    def value_retraining(self, sms: float, window_s: float, windows_left: int | None) -> None:
        """Begin a window whose retraining is set: learn what its gain is worth afterwards.

        `sms`: of the largest instance that it may have; `windows_left`: after this one.
        """
        self.gain.begin_window(self.accuracy)
        job = self.retraining
        if job is None or job.phase is not Phase.WAITING:
            return
        profile_s, before_s = job.seconds.at(sms), self.profile_s
        # a limited number of samples does not outgrow the window
        grows = before_s is not None and job.most_samples is None
        growth = 1 - before_s / profile_s if before_s and grows else 0.0
        longest_s = self.overhead_s + job.planned_s.at(sms) * self._longer
        self.gain.plan(longest_s / window_s, growth, windows_left)
        self.profile_s = profile_s

    def take_estimate(
        self, after: float, before: float, replayed: int, window: int, version: Any
    ) -> None:
        """Take the estimate of a retraining on the labels up to `window`, made for a version.

        If another version serves meanwhile, its own accuracy and samples are known from its
        retraining. An estimate that ends after the next window began still tells how the model
        fares on the new data, if no answers are labelled.
        """
        self.estimate, self.estimated_for = after, window + 1
        if self.version is not version:
            return
        self.judged, self.replayed = before, replayed
        if self.began > window and not self.answers_labelled:
            self.accuracy = before

    def expected_accuracy(self, window: int) -> float:
        """The accuracy to plan with after a retraining in a window: as estimated, or by the gains
        of earlier ones."""
        known = self.estimate if self._is_estimate_valid(window) else None
        return max(self.accuracy, self._expected(known))

    def _is_estimate_valid(self, window: int) -> bool:
        """Whether its labels are not learned yet. One made late in a window is for the next."""
        return self.since < self.estimated_for <= window

    def learned(self, labelled: int) -> int:
        """The number of samples that a retraining on `labelled` labels trains on, replayed ones
        included."""
        return max(1, self._new_samples(labelled) + self.replayed)

    def trained_on(self, labelled: int, samples: int, new_classes: int = 0) -> None:
        """Note the samples of a retraining on `labelled` labels: the others were replayed, and the
        next one replays its new classes as well."""
        replayed = max(0, samples - self._new_samples(labelled))
        self.replayed = replayed + new_classes * self.live.replay

    def _new_samples(self, labelled: int) -> int:
        return round(labelled * (1 - self.live.held_out))

    def most_samples(self, room: TrainingRoom) -> int:
        """The largest number of samples that a retraining can train on within the limits.

        It shrinks with every window in which the retraining found no room.
        """
        part = max(_SMALLEST, _SMALLER**self.missed)
        each_s = self.live.training_s(1).at(room.sms) * self.slower
        left_s = part * room.seconds - self.overhead_s - self.fixed_s
        return max(FEWEST_LABELS, int(left_s / each_s))

    def end_window(self) -> None:
        """End a window in which plans were followed, and check whether its retraining waited in
        vain.

        A single long measurement, or an estimate without a gain, must not block retrainings
        forever.
        """
        self.gain.end_window(self.accuracy)
        job = self.retraining
        if job is not None and job.phase is Phase.WAITING:
            if self.left_out:
                self.skipped += 1
            else:
                self.missed += 1
                self.slower += _FOLLOWED * (1 - self.slower)
                self.fixed_s -= _FOLLOWED * self.fixed_s
        self.left_out = False

    def end_without_samples(self, job: Retraining) -> None:
        """End a retraining whose labels leave nothing to train or to judge on. The next one needs
        more."""
        self.fruitless, job.phase = job.labelled, Phase.DONE

    @property
    def learned_before(self) -> int:
        """The first window whose labels are not learned yet or are being learned."""
        job = self.retraining
        return min(self.since, job.since) if job is not None and self.is_retraining else self.since

    def outlasted(self, window: int) -> bool:
        """Whether its retraining ended in a later window than its own."""
        job = self.retraining
        return job is not None and job.phase is Phase.DONE and job.window < window

    def _expected(self, estimate: float | None) -> float:
        expected = self._without(self.removed) if estimate is None else estimate
        doubted = self.missed + self.skipped >= _DOUBTED
        return max(expected, self._without(_USUAL_GAIN)) if doubted else expected

    def _without(self, removed: float) -> float:
        """The accuracy without this share of the errors."""
        return self.accuracy + removed * (1 - self.accuracy)

    def gained(self, before: float, after: float) -> None:
        """Learn from the accuracies on the same data before and after a retraining."""
        if before < 1:
            removed = max(0.0, (after - before) / (1 - before))
            self.removed += _FOLLOWED * (removed - self.removed)

    def took(
        self, planned_s: float, seconds: float, fixed_s: float = 0.0, followed: float = _FOLLOWED
    ) -> None:
        """Update the expected duration of retrainings from one that has ended.

        `planned_s`: by the profile; `fixed_s`: seconds of it that do not depend on its samples;
        `followed`: weight of this measurement against the earlier ones.
        """
        factor = min(_SLOWEST, max(_FASTEST, (seconds - fixed_s) / planned_s))
        off = (factor * planned_s + fixed_s) / (self.slower * planned_s + self.fixed_s) - 1
        self.variance += _FOLLOWED * (off * off - self.variance)
        self.slower += followed * (factor - self.slower)
        self.fixed_s += followed * (fixed_s - self.fixed_s)
        self.missed = self.skipped = self.fruitless = 0

    def seen(self) -> NDArray[np.float64]:
        """Requests per slot so far."""
        return self.history

    def start_retraining(self, instance: Holding) -> Retraining | None:
        """Mark the waiting retraining as running on an instance; None if there is none."""
        job = self.retraining
        if job is None or job.phase is Phase.DONE:
            return None
        job.phase, job.on, job.progress = Phase.RUNNING, instance, 0.0
        job.since = min(self.since, job.window - 1)
        return job

    def end_retraining(self, job: Retraining, planned_s: float, seconds: float) -> None:
        """Mark a retraining as ended. Its labels are learned, whether the model was adopted or
        not."""
        self.took(planned_s, seconds)
        self.since, job.phase = job.window, Phase.DONE

    def view(self) -> TenantView:
        """The tenant as a policy sees it."""
        return TenantView(
            self.live.service,
            np.zeros_like(self.history) if self.drained else self.seen(),
            None,
            self._state(),
            self.overhead_s,
            self.accuracy,
            self._value_after(),
        )

    def _value_after(self) -> float:
        job = self.retraining
        if job is None or job.expected <= 0:
            return 0.0
        return self.gain.windows(self.accuracy / job.expected)

    @property
    def _longer(self) -> float:
        """The duration that four of five retrainings do not exceed, relative to the mean."""
        return 1 + _LATE * math.sqrt(self.variance)

    def _state(self) -> RetrainingState | None:
        job = self.retraining
        if job is None or job.phase is Phase.DONE:
            return None
        running = job.phase is Phase.RUNNING
        return RetrainingState(
            self.accuracy,
            job.expected,
            job.planned_s,
            min(job.progress, 0.99) if running else 0.0,
            job.on if running else None,
            self._longer,
        )


def tenant_state_of(
    served: ServedTenant, live: LiveTenant, slot_s: float, overhead_s: float
) -> TenantState:
    """The state of a tenant before its first request, with the history that its scenario gives."""
    counts = served.trace.counts[: served.offset_s].astype(np.float64)
    each = round(slot_s)
    whole = len(counts) // each * each
    past = counts[len(counts) - whole :].reshape(-1, each).sum(axis=1)
    return TenantState(live, past[-_HISTORY_SLOTS:], overhead_s=overhead_s)
