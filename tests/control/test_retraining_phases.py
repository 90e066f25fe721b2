"""The life of a retraining: every event in every phase, and who may change a tenant's state."""

from __future__ import annotations

from itertools import product

import pytest

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
from migrator.control.retraining import Phase, TenantRetraining, UnexpectedEventError, apply_event
from migrator.core.problem import Instance
from migrator.core.profiles import Curve
from migrator.policies.policy import RetrainingChoice

SECONDS = Curve(((16.0, 10.0),))
PLACE = Instance(0, 2)
NEXT = TenantRetraining(4, SECONDS, 1.0, 0.8)
"""What a later window plans."""

EVENTS: tuple[RetrainingEvent, ...] = (
    RetrainingPlanned(NEXT),
    NothingToLearn(),
    TrainingStarted(PLACE, 2),
    TrainingProgressed(0.5),
    TrainingInterrupted(),
    TrainingCompleted(),
    SamplesMissing(),
    RetrainingWithdrawn(),
)
NONE, WAITING, RUNNING, DONE, CANCELLED = Phase
ALLOWED = {
    (NONE, RetrainingPlanned): WAITING,
    (NONE, NothingToLearn): NONE,
    (NONE, RetrainingWithdrawn): NONE,
    (WAITING, RetrainingPlanned): WAITING,
    (WAITING, NothingToLearn): NONE,
    (WAITING, TrainingStarted): RUNNING,
    (WAITING, TrainingProgressed): WAITING,
    (WAITING, RetrainingWithdrawn): NONE,
    (RUNNING, RetrainingPlanned): RUNNING,
    (RUNNING, NothingToLearn): RUNNING,
    (RUNNING, TrainingProgressed): RUNNING,
    (RUNNING, TrainingInterrupted): WAITING,
    (RUNNING, TrainingCompleted): DONE,
    (RUNNING, SamplesMissing): DONE,
    (RUNNING, RetrainingWithdrawn): CANCELLED,
    (DONE, RetrainingPlanned): WAITING,
    (DONE, NothingToLearn): NONE,
    (DONE, RetrainingWithdrawn): NONE,
    (CANCELLED, RetrainingPlanned): CANCELLED,
    (CANCELLED, NothingToLearn): CANCELLED,
    (CANCELLED, TrainingProgressed): CANCELLED,
    (CANCELLED, TrainingInterrupted): NONE,
    (CANCELLED, TrainingCompleted): NONE,
    (CANCELLED, SamplesMissing): NONE,
    (CANCELLED, RetrainingWithdrawn): CANCELLED,
}
"""Every event that a phase allows, with the phase after it."""


def in_phase(phase: Phase) -> TenantRetraining | None:
    if phase is NONE:
        return None
    on = PLACE if phase is RUNNING else None
    return TenantRetraining(3, SECONDS, 1.0, 0.9, phase, 0.25, on)


def phase_of(retraining: TenantRetraining | None) -> Phase:
    return NONE if retraining is None else retraining.phase


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, EVENTS)))
def test_every_event_in_every_phase_changes_it_or_is_refused(
    phase: Phase, event: RetrainingEvent
) -> None:
    after = ALLOWED.get((phase, type(event)))
    if after is None:
        message = f"{type(event).__name__} while the retraining is {phase}"
        with pytest.raises(UnexpectedEventError, match=message):
            apply_event(in_phase(phase), event)
        return
    assert phase_of(apply_event(in_phase(phase), event)) is after


@pytest.mark.parametrize("phase", [RUNNING, CANCELLED])
@pytest.mark.parametrize("event", [RetrainingPlanned(NEXT), NothingToLearn()])
def test_one_whose_process_runs_outlasts_its_window(phase: Phase, event: RetrainingEvent) -> None:
    assert apply_event(in_phase(phase), event) == in_phase(phase)


def test_a_training_that_continues_elsewhere_keeps_its_progress() -> None:
    events = (TrainingStarted(PLACE, 2), TrainingProgressed(0.5), TrainingInterrupted())
    retraining: TenantRetraining | None = NEXT
    for event in events:
        retraining = apply_event(retraining, event)
    assert retraining is not None
    assert (retraining.phase, retraining.progress, retraining.on) == (WAITING, 0.5, None)
    elsewhere = Instance(4, 3)
    retraining = apply_event(retraining, TrainingStarted(elsewhere, 1))
    assert retraining is not None
    assert (retraining.progress, retraining.on, retraining.since) == (0.5, elsewhere, 1)


def test_a_waiting_retraining_takes_another_configuration_and_a_running_one_keeps_its_own() -> None:
    half = RetrainingChoice("half", 0.7, SECONDS.scaled(0.5))
    whole = TenantRetraining(4, SECONDS, 2.0, 0.8, configuration="all", others=(half,))
    chosen = whole.chosen("half")
    assert (chosen.expected, chosen.planned_s.at(16)) == (0.7, 10.0)
    assert [choice.seconds.at(16) for choice in chosen.other_choices] == [20.0]
    assert chosen.chosen("all") == whole
    assert whole.chosen("unknown") == whole
    running = apply_event(chosen, TrainingStarted(PLACE, 2))
    assert running is not None
    assert running.chosen("all") == running
