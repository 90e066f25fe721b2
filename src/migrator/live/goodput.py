"""How accurate the answers of a live run are, by their labels.

Only labels of answers show it. An evaluation says how a model does on the samples that were
uploaded, which may be easier than what clients ask.
"""

from __future__ import annotations

from migrator.control.tenant_state import FEWEST_LABELS
from migrator.core.evidence import known_share
from migrator.serving.queue import Counted


def measured_share(counted: Counted) -> float | None:
    """The correct part of the judged answers; None if those are few."""
    return counted.correct / counted.judged if counted.judged >= FEWEST_LABELS else None


def correct_of(counted: Counted) -> float | None:
    """The answers in time that are correct; None if too few of them are labelled to say so."""
    if not counted.in_time:
        return 0.0
    share = known_share(counted.correct, counted.judged, counted.in_time)
    return None if share is None else counted.in_time * share
