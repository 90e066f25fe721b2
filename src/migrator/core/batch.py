"""One batch that a worker answered, as the live router or the simulator saw it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from migrator.core.problem import Holding, Share


class BatchKind(StrEnum):
    """Whose slices a batch ran on, and what it was for."""

    OWN = "own"
    LENT = "lent"
    """Requests on slices of another tenant."""
    EVALUATION = "evaluation"
    """Labelled samples, no requests."""


class Batch(NamedTuple):
    """One batch. All times are on one clock."""

    tenant: str
    place: str
    """The instance or share, as `place_name` names it."""
    kind: BatchKind
    rows: int
    waiting: int
    """Rows of the tenant that still waited when it was taken from the queue."""
    came_s: float
    """When its oldest request arrived."""
    taken_s: float
    """When it was taken from the queue."""
    sent_s: float
    """When it was sent to the worker."""
    began_s: float
    """When the worker had received it."""
    ended_s: float
    """When the worker had its scores."""
    answered_s: float
    """When the router answered its requests."""
    in_time: int
    """Rows that were answered before their deadline."""


def place_name(holding: Holding) -> str:
    """Unlike those of all other instances and shares of the tenant at one time."""
    if isinstance(holding, Share):
        return f"{holding}#{holding.number}"
    return str(holding)
