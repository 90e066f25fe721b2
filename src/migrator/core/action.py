"""What an operator can do to a running system, and what came of it: the same for page, CLI, API."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ActionKind(StrEnum):
    """One thing to do."""

    PAUSE = "pause"
    """Change nothing on the GPU for a plan."""
    RESUME = "resume"
    REPLAN = "replan"
    """Ask the policy at once."""
    ROLL_BACK = "roll-back"
    """Serve a tenant with the version before."""
    DRAIN = "drain"
    """Take no requests of a tenant, and plan without it."""
    UNDRAIN = "undrain"

    @property
    def of_tenant(self) -> bool:
        """Whether it is about one tenant."""
        return self in (ActionKind.ROLL_BACK, ActionKind.DRAIN, ActionKind.UNDRAIN)


class Outcome(StrEnum):
    """What came of an action."""

    DONE = "done"
    REFUSED = "refused"
    """As things stand it has no sense; nothing was changed."""
    FAILED = "failed"


@dataclass(frozen=True)
class Acted:
    """The outcome, and what was done in words."""

    outcome: Outcome
    words: str
    unwritten: bool = False
    """Whether it failed as the disk took nothing; it can be tried again."""
