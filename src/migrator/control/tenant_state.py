"""The state of one tenant: its request history, its model, and what is known about retraining it.

Only `control` changes it. The daemon and the simulator report what happened: events of the
retraining (`on`), versions, measurements and operator's actions, one method each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from migrator.control.events import (
    NothingToLearn,
    RetrainingEvent,
    RetrainingPlanned,
    RetrainingWithdrawn,
    SamplesMissing,
    TrainingStarted,
)
from migrator.control.memory import ProcessMemory
from migrator.control.retraining import Phase, TenantRetraining, apply_event
from migrator.control.served_model import ModelVersion, ServedModel
from migrator.control.training_duration import TrainingDuration
from migrator.control.value_after_window import ValueAfterWindow
from migrator.core.catalogue import Board
from migrator.core.not_retrained import NotRetrained
from migrator.core.problem import Holding
from migrator.core.profiles import Curve, Service
from migrator.core.scenario import Drift, ServedTenant
from migrator.core.training import Layers, TrainingConfiguration
from migrator.policies.policy import RetrainingChoice, RetrainingState, TenantView

if TYPE_CHECKING:
    # a policy's process imports this module and never reads a scenario
    from migrator.workload.live import LiveTenant

FEWEST_LABELS = 20
"""Labels below which a window is not worth learning from."""
_HISTORY_SLOTS = 7200
_WINDOW_PART = 0.8
"""Share of a window that all retrainings may take, one after the other."""
_SMALLER, _SMALLEST = 0.7, 0.1
"""Factor by which a retraining shrinks for every window it waited in vain, and the smallest
size."""


@dataclass(frozen=True)
class TrainingSettings:
    """How a tenant's model is retrained."""

    configurations: tuple[TrainingConfiguration, ...] = (TrainingConfiguration("", 1),)
    """The ways to retrain it; the first one decides on how many samples."""
    replay: int = 0
    """Number of replayed samples of each earlier class."""
    held_out: float = 0.0
    """Fraction of the labelled requests that is never used for training."""
    after_labels: int | None = None
    """New labels with which it is retrained at once; None: it waits for the window."""
    after_drop: float | None = None
    """Loss of accuracy with which it is retrained at once; None: it waits for the window."""

    @classmethod
    def of(cls, live: LiveTenant) -> TrainingSettings:
        """The settings of a live scenario."""
        return cls(
            live.configurations,
            live.replay,
            live.held_out,
            live.retrain_after_labels,
            live.retrain_after_drop,
        )


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
        left = board.compute_slices - sum(tenant.service.min_gpcs for tenant in tenants)
        sizes = [size for size in board.sizes if size <= left] or board.sizes[:1]
        return cls(board.sms_of(sizes[-1]), _WINDOW_PART * window_s / max(1, len(tenants)))


class TenantState:
    """A tenant's state between requests."""

    def __init__(
        self,
        service: Service,
        training: TrainingSettings | None = None,
        history: NDArray[np.float64] | None = None,
        *,
        overhead_s: float = 0.0,
    ) -> None:
        """`history`: requests per slot before the run. `overhead_s`: seconds until a new instance
        serves."""
        self.service = service
        self.training = training or TrainingSettings()
        self.memory = ProcessMemory(service)
        self._history = np.empty(0) if history is None else history
        self.overhead_s = overhead_s
        self.drained = False
        """Whether the tenant accepts no requests, so that nothing is planned for it."""
        self.model = ServedModel()
        self.labelled: int | None = None
        """Labels that were not learned yet when the window began; None if they are not counted."""
        # the retraining, and how the next one is planned
        self.retraining: TenantRetraining | None = None
        """The retraining of the window; None if there is nothing to learn."""
        self._replayed = 0
        """Samples of earlier windows that the next retraining replays."""
        self._profile_s: float | None = None
        """Duration of the last window's retraining by the profile."""
        self.duration, self.value_after = TrainingDuration(), ValueAfterWindow()
        # windows without a retraining
        self._missed = 0
        """Windows in a row that ended with a possible retraining still waiting."""
        self._skipped = 0
        """Windows in a row for which the plan left the retraining out."""
        self._left_out = False
        self._fruitless = 0
        """Number of labels with which the last retraining found no samples."""
        self.not_planned: NotRetrained | None = None
        """Why the last decision of this window does not run the waiting retraining; None before
        it."""

    @property
    def name(self) -> str:
        return self.service.tenant

    @property
    def version(self) -> Any:
        """The version that serves; None without a model, as in a simulation."""
        return self.model.version

    @property
    def accuracy(self) -> float:
        """Accuracy of the serving model that plans rest on."""
        return self.model.accuracy.value

    @property
    def labels_needed(self) -> int:
        """Fewest labels with which a retraining is planned: more than left no samples before."""
        return max(FEWEST_LABELS, self._fruitless + 1)

    @property
    def planned(self) -> bool:
        """Whether plans include the tenant. A drained tenant is included only while it is
        retrained."""
        return not self.drained or self.is_retraining

    @property
    def is_retraining(self) -> bool:
        return self.retraining is not None and self.retraining.phase is Phase.RUNNING

    @property
    def retraining_requested(self) -> bool:
        """Whether a retraining was asked for and has not begun."""
        job = self.retraining
        return job is not None and job.phase is Phase.WAITING and job.requested

    @property
    def learned_before(self) -> int:
        """The first window whose labels are not learned yet or are being learned."""
        job = self.retraining
        if job is not None and job.phase is Phase.RUNNING:
            return min(self.model.since, job.since)
        return self.model.since

    def outlasted(self, window: int) -> bool:
        """Whether its retraining ended in a later window than its own."""
        job = self.retraining
        return job is not None and job.phase is Phase.DONE and job.window < window

    # Requests and operators.

    def requests(self) -> NDArray[np.float64]:
        """Requests per slot so far, beginning with the scenario's history."""
        return self._history

    def count_requests(self, slot: float) -> None:
        """Append a slot with its number of requests to the history. Slots of a drained tenant are
        skipped, because they say nothing about its demand."""
        if not self.drained:
            self._history = np.append(self._history, slot)[-_HISTORY_SLOTS:]

    def measure_overhead(self, overhead_s: float) -> None:
        """Plan with another time until a new instance serves."""
        self.overhead_s = overhead_s

    def drain(self) -> None:
        """Plan nothing for the tenant, except to the end of a running retraining."""
        self.drained = True

    def undrain(self) -> None:
        """Plan for the tenant again."""
        self.drained = False

    def remove(self) -> None:
        """Plan nothing for the tenant, not even a running retraining."""
        self.drained = True
        self.on(RetrainingWithdrawn())

    # The life of a retraining.

    def on(self, event: RetrainingEvent) -> None:
        """Apply an event of the retraining; UnexpectedEventError if its phase does not allow it."""
        before = self.retraining
        self.retraining = apply_event(before, event)
        if isinstance(event, SamplesMissing) and before is not None:
            self._fruitless = before.labelled

    def start_retraining(self, instance: Holding) -> TenantRetraining | None:
        """Start the waiting retraining on an instance; None if none waits."""
        job = self.retraining
        if job is None or job.phase in (Phase.DONE, Phase.CANCELLED):
            return None
        self.on(TrainingStarted(instance, min(self.model.since, job.last_window)))
        return self.retraining

    def choose(self, configuration: str) -> None:
        """Retrain in this configuration, if the retraining waits and may have it."""
        if self.retraining is not None:
            self.retraining = self.retraining.chosen(configuration)

    def begin_window(
        self, window: int, labelled: int, accuracy: float | None, room: TrainingRoom
    ) -> None:
        """Begin a window in which `labelled` labels are not learned yet.

        `accuracy`: of the model on the labels of the last window; None if there were none.
        """
        self.labelled = self.model.new_labels(labelled)
        self.model.begin_window(window, accuracy, has_new_data=self.labelled >= FEWEST_LABELS)
        if not self.is_retraining:
            self.model.drop_learned_estimate()
        if self.labelled < self.labels_needed:
            self.on(NothingToLearn())
            return
        self._plan_from_labels(window, labelled, room)

    def retrain_now(self, window: int, labelled: int, of_window: int, room: TrainingRoom) -> None:
        """Plan a retraining that was asked for, on the `labelled` labels since the last one.

        `of_window`: how many of them belong to the present window.
        """
        self._plan_from_labels(window, labelled, room, learns_now=of_window)

    def _plan_from_labels(
        self, window: int, labelled: int, room: TrainingRoom, learns_now: int | None = None
    ) -> None:
        most = self.most_samples(room)
        samples = min(most, self.samples(labelled))
        choices = [
            RetrainingChoice(
                configuration.name,
                self.expected_accuracy(window, configuration.name),
                self._expected_s(samples, configuration),
                configuration.memory_gib,
            )
            for configuration in self.training.configurations
        ]
        self._plan_retraining(
            window,
            choices,
            self.model.estimate_for(window),
            labelled=labelled,
            most_samples=most,
            requested=self.retraining_requested or learns_now is not None,
            learns_now=learns_now,
        )

    def begin_known_window(
        self, window: int, accuracy: float | None, drift: Drift | None, *, known: bool
    ) -> None:
        """Begin a window of which the scenario gives the accuracy and the retraining.

        `accuracy`: None if nothing tells it. `known`: the policy knows the true accuracies after
        the retraining. Otherwise other configurations are expected to differ from the first as the
        scenario estimates.
        """
        learns = drift is not None and drift.seconds is not None
        self.model.begin_known_window(accuracy, has_new_data=learns)
        if drift is None or drift.seconds is None:
            self.on(NothingToLearn())
            return
        first = drift.accuracy_post if known else self.expected_accuracy(window)
        estimated = drift.accuracy_post if known else drift.accuracy_expected
        choices = [RetrainingChoice(drift.configuration, first, drift.seconds)]
        choices += (
            RetrainingChoice(
                other.name,
                min(1.0, max(0.0, first + (other.accuracy(known=known) - estimated))),
                other.seconds,
                other.memory_gib,
            )
            for other in drift.others
        )
        self._plan_retraining(window, choices, None if known else self.model.estimate_for(window))

    def _plan_retraining(
        self,
        window: int,
        choices: Sequence[RetrainingChoice],
        estimated: float | None,
        *,
        labelled: int = 0,
        most_samples: int | None = None,
        requested: bool = False,
        learns_now: int | None = None,
    ) -> None:
        first, *others = choices
        planned = TenantRetraining(
            window,
            first.seconds,
            self.duration.slower,
            first.accuracy_post,
            since=self.model.since,
            labelled=labelled,
            most_samples=most_samples,
            fixed_s=self.duration.fixed_s,
            estimated=estimated,
            configuration=first.configuration,
            memory_gib=first.memory_gib,
            others=tuple(others),
            requested=requested,
            learns_now=learns_now,
        )
        self.on(RetrainingPlanned(planned))

    def end_window(self) -> None:
        """End a window in which plans were followed, and check whether its retraining waited in
        vain.

        A single long measurement, or an estimate without a gain, must not block retrainings
        forever.
        """
        self.value_after.end_window(self.accuracy)
        job = self.retraining
        if job is not None and job.phase is Phase.WAITING:
            if self._left_out:
                self._skipped += 1
            else:
                self._missed += 1
                self.duration.doubt()
        self._left_out = False

    def leave_out(self, *, planned: bool, fits: bool) -> None:
        """Note whether a plan contains the retraining, and whether it would fit."""
        # a later plan of the window may have too little time left for it
        self._left_out = not planned and (self._left_out or fits)

    def explain(self, why: NotRetrained | None) -> None:
        """Note why the last decision does not run the waiting retraining."""
        self.not_planned = why

    # Estimates of the next retraining.

    @property
    def wants_estimate(self) -> bool:
        """Whether an estimate may say more about the next retraining than the earlier ones do.

        They say enough while one follows the other. An estimate also judges the serving model,
        which matters if nothing else does.
        """
        job = self.retraining
        is_retrained = job is not None and job.phase in (Phase.RUNNING, Phase.DONE)
        return not (is_retrained and self.model.is_measured and self.model.gains.predicts)

    def take_estimate(
        self, after: float, before: float, replayed: int, window: int, version: Any
    ) -> None:
        """Take the estimate of a retraining on the labels up to `window`, made for a version.

        `before`: the accuracy of that version on the same labels. If another version serves
        meanwhile, its own accuracy and samples are known from its retraining.
        """
        self.model.set_estimate(after, window + 1)
        if self.version is version:
            self._replayed = replayed
            self.take_evaluation(before, window, version)

    def take_evaluation(self, accuracy: float, window: int, version: Any) -> bool:
        """Take the accuracy of a version on the labels up to `window`. Returns whether it changes
        what is known of the serving model now, and so of the waiting retraining."""
        if not self.model.evaluate(accuracy, window, version):
            return False
        job = self.retraining
        if job is not None and job.phase is Phase.WAITING:
            now = self.model.window
            expected = self.expected_accuracy(now, job.configuration)
            others = tuple(
                replace(other, accuracy_post=self.expected_accuracy(now, other.configuration))
                for other in job.others
            )
            self.on(RetrainingPlanned(replace(job, expected=expected, others=others)))
        return True

    def expected_accuracy(self, window: int, configuration: str = "") -> float:
        """The accuracy to plan with after a retraining in a window: as estimated, or by the gains
        of earlier ones. `configuration`: its name; empty for the first."""
        name = self._configuration(configuration).name
        return self.model.expected(window, name, self._missed + self._skipped)

    # Samples and durations.

    def training_s(self, samples: float, configuration: str = "") -> Curve:
        """Seconds of a retraining on this number of samples, or the configuration's part of them,
        over SMs, according to its profile. `configuration`: its name; empty for the first."""
        return self.service.profile.training_s(samples * self._configuration(configuration).work)

    def _configuration(self, name: str) -> TrainingConfiguration:
        """The configuration of this name, else the first one."""
        every = self.training.configurations
        return next((one for one in every if one.name == name), every[0])

    def _expected_s(self, samples: int, configuration: TrainingConfiguration) -> Curve:
        """The same with what is measured of its layers, relative to those retrained last."""
        relative = self.duration.relative(configuration.layers)
        return self.training_s(samples, configuration.name).scaled(relative)

    def profile_s(self, job: TenantRetraining) -> Curve:
        """The seconds of a planned retraining according to the profile."""
        layers = self._configuration(job.configuration).layers
        return job.seconds.scaled(1 / self.duration.relative(layers))

    def samples(self, labelled: int) -> int:
        """The number of samples that a retraining on `labelled` labels trains on, replayed ones
        included."""
        return max(1, self._new_samples(labelled) + self._replayed)

    def most_samples(self, room: TrainingRoom) -> int:
        """The largest number of samples that a retraining can train on within the limits.

        It shrinks with every window in which the retraining found no room.
        """
        part = max(_SMALLEST, _SMALLER**self._missed)
        first = self.training.configurations[0]
        sample_s = self._expected_s(1, first).at(room.sms) * self.duration.slower
        left_s = part * room.seconds - self.overhead_s - self.duration.fixed_s
        return max(FEWEST_LABELS, int(left_s / sample_s))

    def count_samples(self, labelled: int, samples: int, new_classes: int = 0) -> None:
        """Note the samples of a retraining on `labelled` labels: the others were replayed, and the
        next one replays its new classes as well."""
        replayed = max(0, samples - self._new_samples(labelled))
        self._replayed = replayed + new_classes * self.training.replay

    def _new_samples(self, labelled: int) -> int:
        return round(labelled * (1 - self.training.held_out))

    def measure_training(
        self,
        profile_s: float,
        seconds: float,
        *,
        fixed_s: float = 0.0,
        first: bool = False,
        layers: Layers = Layers.ALL,
    ) -> None:
        """Update the expected duration of retrainings from one that has ended.

        `profile_s`: by the profile; `fixed_s`: seconds of it that do not depend on its samples;
        `first`: the first one of these layers on this GPU, which replaces what was assumed.
        """
        self.duration.measure(profile_s, seconds, fixed_s, replaces=first, layers=layers)
        self._missed = self._skipped = self._fruitless = 0

    # The model and what retraining it gains.

    def switch_version(self, version: ModelVersion) -> None:
        """Serve another version than the retraining made, or the first. Everything received since
        it was made is to be learned."""
        self.model.switch(version)
        self.duration.restore(version.about)

    def value_retraining(self, sms: float, window_s: float) -> None:
        """Begin a window whose retraining is set: learn what its gain is worth afterwards.

        `sms`: of the largest instance that it may have.
        """
        self.value_after.begin_window(self.accuracy)
        job = self.retraining
        if job is None or job.phase is not Phase.WAITING:
            return
        profile_s, before_s = job.seconds.at(sms), self._profile_s
        # a limited number of samples does not outgrow the window
        grows = before_s is not None and job.most_samples is None
        growth = 1 - before_s / profile_s if before_s and grows else 0.0
        longest_s = self.overhead_s + job.planned_s.at(sms) * self.duration.longer
        self.value_after.plan(longest_s / window_s, growth)
        self._profile_s = profile_s

    # What a policy sees.

    def view(self) -> TenantView:
        """The tenant as a policy sees it."""
        requests = self.requests()
        return TenantView(
            self.service,
            np.zeros_like(requests) if self.drained else requests,
            None,
            self._retraining_state(),
            self.overhead_s,
            self.accuracy,
            self._value_after(),
        )

    def _value_after(self) -> float:
        job = self.retraining
        if job is None or job.phase is Phase.CANCELLED or job.expected <= 0:
            return 0.0
        return self.value_after.windows(self.accuracy / job.expected)

    def _retraining_state(self) -> RetrainingState | None:
        job = self.retraining
        if job is None or job.phase not in (Phase.WAITING, Phase.RUNNING):
            return None
        running = job.phase is Phase.RUNNING
        return RetrainingState(
            self.accuracy,
            job.expected,
            job.planned_s,
            min(job.progress, 0.99) if running else 0.0,
            job.on if running else None,
            self.duration.longer,
            job.configuration,
            () if running else job.other_choices,
            job.memory_gib,
            job.requested,
        )


def tenant_state_of(
    served: ServedTenant, live: LiveTenant, slot_s: float, overhead_s: float
) -> TenantState:
    """The state of a tenant before its first request, with the history that its scenario gives."""
    counts = served.trace.counts[: served.offset_s].astype(np.float64)
    slot_seconds = round(slot_s)
    whole = len(counts) // slot_seconds * slot_seconds
    past = counts[len(counts) - whole :].reshape(-1, slot_seconds).sum(axis=1)
    settings = TrainingSettings.of(live)
    return TenantState(live.service, settings, past[-_HISTORY_SLOTS:], overhead_s=overhead_s)
