"""What the executor says and hears: instructions to whoever acts, events of what became of them.

Every instruction but `Replan` is answered by events about its instance, in the end by one of
those named there. An instance is told apart by start and size; the task it carries is ignored. What
is said of instances holds for shares too, which have a task from the start and need no making.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from migrator.core.share import Holding


@dataclass(frozen=True)
class Create:
    """Make the instance; its slices are free. Answered by Created or CreateFailed."""

    instance: Holding


@dataclass(frozen=True)
class Destroy:
    """Remove the instance; nobody works on it. Answered by Destroyed or DestroyFailed."""

    instance: Holding


@dataclass(frozen=True)
class Warm:
    """Put a worker of the tenant there, route to it once warm. Answered by Ready or WorkerLost."""

    instance: Holding
    tenant: str


@dataclass(frozen=True)
class Drain:
    """Nothing new to the worker there. Answered by Drained once it has answered what it held."""

    instance: Holding
    tenant: str


@dataclass(frozen=True)
class StopWorker:
    """End the worker there, drained or not yet warm. Answered by Stopped, also where none is."""

    instance: Holding


@dataclass(frozen=True)
class Train:
    """Retrain the tenant's model there, to its end. Answered by TrainingEnded."""

    instance: Holding
    tenant: str


@dataclass(frozen=True)
class Replan:
    """The plan cannot be followed as it is; decide again on what is there."""

    reason: str
    about: str = field(default="", compare=False)
    """In one word, so that reasons can be counted."""


Instruction = Create | Destroy | Warm | Drain | StopWorker | Train | Replan


@dataclass(frozen=True)
class Created:
    """The instance exists."""

    instance: Holding


@dataclass(frozen=True)
class CreateFailed:
    """It could not be made, and nothing of it is there."""

    instance: Holding
    why: str


@dataclass(frozen=True)
class Ready:
    """Its worker is warm and gets requests; `seconds` since it was told to warm."""

    instance: Holding
    seconds: float


@dataclass(frozen=True)
class WorkerLost:
    """Its worker died, hung or could not start; none is there any more."""

    instance: Holding
    why: str


@dataclass(frozen=True)
class Drained:
    """Its worker has answered all it held."""

    instance: Holding


@dataclass(frozen=True)
class Stopped:
    """Its worker has ended; the instance is free."""

    instance: Holding


@dataclass(frozen=True)
class Destroyed:
    """The instance is gone, whether we asked for it or not."""

    instance: Holding


@dataclass(frozen=True)
class DestroyFailed:
    """It is still there."""

    instance: Holding
    why: str


@dataclass(frozen=True)
class TrainingEnded:
    """The retraining ended and its process with it; not `ok`: it failed and may be resumed.

    A model that was trained and then refused is `ok`: training it again would not help.
    """

    instance: Holding
    tenant: str
    ok: bool
    why: str = ""


Event = (
    Created
    | CreateFailed
    | Ready
    | WorkerLost
    | Drained
    | Stopped
    | Destroyed
    | DestroyFailed
    | TrainingEnded
)
