"""An accuracy, and what it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

CLOSE, _ERRORS = 0.02, 3.0
"""A share counts as known if this many standard errors are within this part of it."""


class Evidence(StrEnum):
    """What an accuracy rests on, strongest first."""

    ANSWERS = "answers"
    """Labels of answers of this window."""
    SAMPLES = "samples"
    """Labelled samples that are this window's data, by an evaluation or a retraining."""
    EARLIER = "earlier"
    """Data of earlier windows: the model may do worse by now."""
    NONE = "none"
    """Nothing: it is assumed."""


@dataclass(frozen=True)
class Accuracy:
    """The accuracy of a serving model with its evidence."""

    value: float
    evidence: Evidence


def known_share(correct: int, judged: int, whole: int) -> float | None:
    """The correct part of `whole` answers, of which a random part is judged; None if that is too
    small to tell it."""
    if not judged:
        return None
    share = correct / judged
    # with few answers all or none may be right by chance
    likely = (correct + 1) / (judged + 2)
    variance = likely * (1 - likely) / judged * max(0.0, 1 - judged / whole)
    return share if _ERRORS * math.sqrt(variance) <= CLOSE * share else None
