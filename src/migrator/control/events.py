"""What the controller says and hears: instructions to the actuator, and events.

The events of the executor (`Event`) report the outcome of instructions. Every instruction is
answered by events about its instance, except those whose docstrings say otherwise. The last of them
is one of those that the instruction's docstring names. An instance is identified by start and size;
its task is ignored. Shares use the same instructions and events; they have a task from the start
and need no creation on the GPU.

The events of a retraining (`RetrainingEvent`) tell a tenant's state what happens to its labels and
to the training on them. `retraining.py` has the states.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migrator.core.problem import Holding

if TYPE_CHECKING:
    from migrator.control.retraining import TenantRetraining


@dataclass(frozen=True)
class Create:
    """Create the instance; its slices are free. Answered by Created or CreateFailed."""

    instance: Holding


@dataclass(frozen=True)
class Destroy:
    """Destroy the instance; no process uses it. Answered by Destroyed or DestroyFailed."""

    instance: Holding


@dataclass(frozen=True)
class Warm:
    """Start a worker of the tenant and route to it once warm. Answered by Ready or WorkerLost."""

    instance: Holding
    tenant: str


@dataclass(frozen=True)
class Prepare:
    """Start a standby: a worker that the next `Warm` of the tenant on the instance uses.

    Until then the slices serve or train something else, and the instance need not exist. Answered
    by Prepared, unless the standby is discarded before.
    """

    instance: Holding
    tenant: str


@dataclass(frozen=True)
class Keep:
    """Keep the drained worker of the tenant as a standby. Not answered: the instance is free."""

    instance: Holding
    tenant: str


@dataclass(frozen=True)
class Discard:
    """End the standby of the tenant on the instance. Not answered."""

    instance: Holding
    tenant: str


@dataclass(frozen=True)
class Drain:
    """Send no more requests to the worker. Answered by Drained once its requests are answered."""

    instance: Holding
    tenant: str


@dataclass(frozen=True)
class StopWorker:
    """End the worker, drained or not yet warm. Answered by Stopped, even if there is none."""

    instance: Holding


@dataclass(frozen=True)
class StopTraining:
    """End the retraining on a share; it continues on another. Answered by TrainingEnded."""

    instance: Holding
    tenant: str


@dataclass(frozen=True)
class Train:
    """Retrain the tenant's model on the instance, to the end. Answered by TrainingEnded."""

    instance: Holding
    tenant: str


@dataclass(frozen=True)
class Replan:
    """The plan cannot be followed; decide again on the current state. Not answered."""

    reason: str
    about: str = field(default="", compare=False)
    """The kind of reason in one word, for counting."""


Instruction = (
    Create
    | Destroy
    | Warm
    | Prepare
    | Keep
    | Discard
    | Drain
    | StopWorker
    | StopTraining
    | Train
    | Replan
)


@dataclass(frozen=True)
class Created:
    """The instance exists."""

    instance: Holding


@dataclass(frozen=True)
class CreateFailed:
    """The instance could not be created, and nothing of it exists."""

    instance: Holding
    why: str


@dataclass(frozen=True)
class Prepared:
    """The standby can serve; with `why`, it could not start or was lost, and there is none."""

    instance: Holding
    tenant: str
    why: str = ""


@dataclass(frozen=True)
class Ready:
    """The worker is warm and gets requests, `seconds` after the instruction to warm."""

    instance: Holding
    seconds: float


@dataclass(frozen=True)
class WorkerLost:
    """The worker died, hung or could not start; there is none any more."""

    instance: Holding
    why: str


@dataclass(frozen=True)
class Drained:
    """The worker has answered all its requests."""

    instance: Holding


@dataclass(frozen=True)
class Stopped:
    """The worker has ended; the instance is free."""

    instance: Holding


@dataclass(frozen=True)
class Destroyed:
    """The instance is gone, whether its removal was requested or not."""

    instance: Holding


@dataclass(frozen=True)
class DestroyFailed:
    """The instance still exists."""

    instance: Holding
    why: str


@dataclass(frozen=True)
class TrainingEnded:
    """The retraining and its process ended. Not `ok`: it failed and may be resumed.

    A model that was trained and then refused is `ok`, because training it again would not help.
    """

    instance: Holding
    tenant: str
    ok: bool
    why: str = ""


Event = (
    Created
    | CreateFailed
    | Prepared
    | Ready
    | WorkerLost
    | Drained
    | Stopped
    | Destroyed
    | DestroyFailed
    | TrainingEnded
)


@dataclass(frozen=True)
class RetrainingPlanned:
    """A window begins with labels that can be learned."""

    retraining: TenantRetraining


@dataclass(frozen=True)
class NothingToLearn:
    """A window begins without enough new labels."""


@dataclass(frozen=True)
class TrainingStarted:
    """The training begins on an instance or share, or continues there."""

    instance: Holding
    since: int
    """The first window that it learns from."""


@dataclass(frozen=True)
class TrainingProgressed:
    """A part of the training is done, from 0 to 1."""

    part: float


@dataclass(frozen=True)
class TrainingInterrupted:
    """The training ended without a result: it was stopped, failed, or its model is not on disk."""


@dataclass(frozen=True)
class TrainingCompleted:
    """The labels are learned, whether the model was adopted or refused."""


@dataclass(frozen=True)
class SamplesMissing:
    """The labels leave no samples to train or to judge on."""


@dataclass(frozen=True)
class RetrainingWithdrawn:
    """The tenant is being removed."""


RetrainingEvent = (
    RetrainingPlanned
    | NothingToLearn
    | TrainingStarted
    | TrainingProgressed
    | TrainingInterrupted
    | TrainingCompleted
    | SamplesMissing
    | RetrainingWithdrawn
)
