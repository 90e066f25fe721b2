"""Why a tenant is not being retrained: a reason from a short list, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why the retraining of a tenant does not run."""

    NO_DATA = "no_data"
    """There are too few new labels."""
    DRAINED = "drained"
    """An operator drained the tenant."""
    PAUSED = "paused"
    """An operator paused reconfiguration."""
    NO_PLAN = "no_plan"
    """The policy has not decided about this window."""
    PLANNED = "planned"
    """The plan starts it later in the window."""
    OUT_OF_MEMORY = "out_of_memory"
    """No instance has the memory to train the model."""
    TOO_LONG = "too_long"
    """It would not end within the window."""
    NO_ROOM = "no_room"
    """Other tasks need the instances on which it could run."""
    LEFT_OUT = "left_out"
    """The policy left it out, although it would fit."""
    FAILED = "failed"
    """It started and failed, or could not start."""


@dataclass(frozen=True)
class NotRetrained:
    """Why a tenant is not being retrained."""

    reason: Reason
    words: str
    """One sentence with the numbers behind the reason, without the tenant's name."""
