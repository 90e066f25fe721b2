"""An accuracy, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
