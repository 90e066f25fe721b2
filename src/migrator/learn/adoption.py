"""Whether a retrained model takes the place of the one that serves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Adoption:
    """A decision, and what it rests on."""

    adopted: bool
    accuracy_served: float
    """Of the model that serves, on the window's held-out data."""
    accuracy_candidate: float


def decide(accuracy_served: float, accuracy_candidate: float) -> Adoption:
    """Adopt unless worse on held-out data; a figure that is no number is worse than any."""
    return Adoption(accuracy_candidate >= accuracy_served, accuracy_served, accuracy_candidate)
