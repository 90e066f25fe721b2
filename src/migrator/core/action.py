"""Actions of an operator on a running system and their outcomes, for dashboard, CLI and API."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ActionKind(StrEnum):
    """The kind of an action."""

    PAUSE = "pause"
    """Stop applying plans to the GPU."""
    RESUME = "resume"
    REPLAN = "replan"
    """Plan the rest of the window again at once."""
    ROLL_BACK = "roll-back"
    """Serve a tenant with the previous version of its model."""
    DRAIN = "drain"
    """Refuse requests of a tenant and plan without it."""
    UNDRAIN = "undrain"
    RETRAIN = "retrain"
    """Retrain a tenant as soon as there is room for it."""

    @property
    def of_tenant(self) -> bool:
        return self not in (ActionKind.PAUSE, ActionKind.RESUME, ActionKind.REPLAN)


class Outcome(StrEnum):
    """Whether an action was carried out."""

    DONE = "done"
    REFUSED = "refused"
    """Not possible in the current state; nothing was changed."""
    FAILED = "failed"


@dataclass(frozen=True)
class Acted:
    """The outcome and a description."""

    outcome: Outcome
    words: str
    unwritten: bool = False
    """Whether it failed because nothing could be written to disk; it can be retried."""
