"""The retraining of a tenant with its phases, and how events change them.

none -> waiting -> running -> done, and again from the next window that has labels to learn. An
interrupted training waits again. A running one outlasts its window and continues. One whose tenant
is removed is cancelled until its process has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from migrator.control.events import (
    NothingToLearn,
    RetrainingEvent,
    RetrainingPlanned,
    RetrainingWithdrawn,
    SamplesMissing,
    TrainingCompleted,
    TrainingInterrupted,
    TrainingProgressed,
    TrainingStarted,
)
from migrator.core.problem import Holding
from migrator.core.profiles import Curve
from migrator.policies.policy import RetrainingChoice


class Phase(StrEnum):
    """The phase of a tenant's retraining."""

    NONE = "none"
    """There is nothing to learn."""
    WAITING = "waiting"
    """It may be started."""
    RUNNING = "running"
    DONE = "done"
    """Its labels are learned, or cannot be."""
    CANCELLED = "cancelled"
    """Its tenant is being removed, and its process is being ended."""


@dataclass(frozen=True)
class TenantRetraining:
    """A retraining on the labels of earlier windows, in one of its phases."""

    window: int
    """The retraining learns from windows before this one."""
    seconds: Curve
    """Duration by SMs, from the profile."""
    slower: float
    """Measured duration divided by the profile's duration."""
    expected: float
    """Accuracy to plan with after it."""
    phase: Phase = Phase.WAITING
    progress: float = 0.0
    """The part that is done, as last reported."""
    on: Holding | None = None
    """The instance or share of the running training."""
    since: int = 0
    """The first window that it learns from."""
    labelled: int = 0
    """Labels that were not learned yet when it was planned."""
    most_samples: int | None = None
    """Maximum number of training samples; None for all."""
    fixed_s: float = 0.0
    """Measured seconds that every retraining takes, however small: its duration is these and
    `slower` times the profile's."""
    estimated: float | None = None
    """Accuracy after it by the estimate; None if there was none."""
    configuration: str = ""
    """The name of its configuration; empty for a tenant's only one."""
    memory_gib: float = 0.0
    """Memory that its instance has at least in this configuration."""
    others: tuple[RetrainingChoice, ...] = ()
    """The other configurations that it may have instead until it starts."""
    requested: bool = False
    """Whether it was asked for, by an operator or by a limit of the scenario."""
    learns_now: int | None = None
    """Labels of its own window when it was requested, which it learns as well; None: it learns
    those of earlier windows only."""

    @property
    def last_window(self) -> int:
        """The last window whose labels it learns, those of its own window so far."""
        return self.window - (self.learns_now is None)

    @property
    def planned_s(self) -> Curve:
        return self._planned_s(self.seconds)

    @property
    def other_choices(self) -> tuple[RetrainingChoice, ...]:
        return tuple(
            replace(choice, seconds=self._planned_s(choice.seconds)) for choice in self.others
        )

    def chosen(self, configuration: str) -> TenantRetraining:
        """The same in another configuration; unchanged if it runs, or has no such one."""
        for choice in self.others if self.phase is Phase.WAITING else ():
            if choice.configuration == configuration:
                present = RetrainingChoice(
                    self.configuration, self.expected, self.seconds, self.memory_gib
                )
                rest = tuple(other for other in self.others if other is not choice)
                return replace(
                    self,
                    configuration=configuration,
                    expected=choice.accuracy_post,
                    seconds=choice.seconds,
                    memory_gib=choice.memory_gib,
                    others=(present, *rest),
                )
        return self

    def _planned_s(self, seconds: Curve) -> Curve:
        return seconds.scaled(self.slower).raised(self.fixed_s)


class UnexpectedEventError(RuntimeError):
    """An event that cannot happen in the present phase: a defect of the part that sent it."""


def apply_event(
    retraining: TenantRetraining | None, event: RetrainingEvent
) -> TenantRetraining | None:
    """The retraining after an event; None if there is nothing to learn.

    Raises UnexpectedEventError for an event that the phase does not allow.
    """
    after: TenantRetraining | None
    match event, retraining:
        case RetrainingPlanned(new), None | TenantRetraining(phase=Phase.WAITING | Phase.DONE):
            after = new
        case NothingToLearn(), None | TenantRetraining(phase=Phase.WAITING | Phase.DONE):
            after = None
        case RetrainingPlanned() | NothingToLearn(), TenantRetraining() as busy:
            after = busy  # later labels are learned after it
        case TrainingStarted(instance, since), TenantRetraining(phase=Phase.WAITING) as waiting:
            after = replace(waiting, phase=Phase.RUNNING, on=instance, since=since)
        case TrainingProgressed(part), TenantRetraining(phase=Phase.RUNNING) as running:
            after = replace(running, progress=part)
        case TrainingProgressed(), TenantRetraining(
            phase=Phase.WAITING | Phase.CANCELLED
        ) as stopped:
            after = stopped  # its process sent this before it ended
        case TrainingInterrupted(), TenantRetraining(phase=Phase.RUNNING) as running:
            # it continues from its checkpoints, which are of its configuration
            after = replace(running, phase=Phase.WAITING, on=None, others=())
        case TrainingCompleted() | SamplesMissing(), TenantRetraining(
            phase=Phase.RUNNING
        ) as running:
            after = replace(running, phase=Phase.DONE)
        case (
            TrainingInterrupted() | TrainingCompleted() | SamplesMissing(),
            TenantRetraining(phase=Phase.CANCELLED),
        ):
            after = None
        case RetrainingWithdrawn(), TenantRetraining(
            phase=Phase.RUNNING | Phase.CANCELLED
        ) as running:
            after = replace(running, phase=Phase.CANCELLED, on=None)
        case RetrainingWithdrawn(), _:
            after = None
        case _:
            phase = Phase.NONE if retraining is None else retraining.phase
            raise UnexpectedEventError(f"{type(event).__name__} while the retraining is {phase}")
    return after
