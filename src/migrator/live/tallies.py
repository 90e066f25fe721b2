"""What happened in this life of a daemon, counted where it happens; `metrics.py` tells it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from migrator.serve.families import Histogram

PART_BOUNDS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
PLAN_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0)
TRAINING_BOUNDS_S = (1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 100.0, 150.0, 200.0, 400.0, 800.0)

STEPS = ("create", "warm", "drain", "stop", "destroy", "train", "swap")
PARTS = (
    "create",
    "load",
    "context",
    "copy",
    "first",
    "warm",
    "drain",
    "stop",
    "destroy",
    "swap",
)
"""load, context, copy and first are what warm consists of."""
DONE, FAILED, STOPPED = "done", "failed", "stopped"
HIDDEN, VISIBLE = "hidden", "visible"
TAKEN, DROPPED, LOST = "taken", "dropped", "lost"
"""Of plans: followed; too late for their window; the policy failed, died or thought too long."""
ADOPTED, REFUSED = "adopted", "refused"
STORED, REPEATED = "stored", "repeated"


def _parts() -> dict[str, Histogram]:
    return {each: Histogram(PART_BOUNDS_S) for each in PARTS}


@dataclass
class Tallies:
    """Everything only grows, but what is of the last plan."""

    steps: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Steps of reconfigurations and how they ended."""
    parts: dict[str, Histogram] = field(default_factory=_parts)
    overhead_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """Per tenant, hidden and visible."""
    losses: Counter[str] = field(default_factory=Counter)
    """Workers lost, per tenant."""
    asked: Counter[str] = field(default_factory=Counter)
    """Plans that were asked for, by the kind of reason."""
    plans: Counter[str] = field(default_factory=Counter)
    plan_s: Histogram = field(default_factory=lambda: Histogram(PLAN_BOUNDS_S))
    taken_s: float | None = None
    """When the last plan was taken; None: none was yet."""
    gap: float | None = None
    expected: float | None = None
    retrainings: Counter[tuple[str, str]] = field(default_factory=Counter)
    training_s: Histogram = field(default_factory=lambda: Histogram(TRAINING_BOUNDS_S))
    labels: Counter[tuple[str, str]] = field(default_factory=Counter)
    unwritten: int = 0
    """Times that records could not be written."""
    damaged: Counter[str] = field(default_factory=Counter)
    """Files that were damaged when they were opened, by name."""
    actions: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What operators did, and its outcome."""
