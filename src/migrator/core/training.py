"""How a retraining is carried out: its epochs, its part of the samples, and its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Layers(StrEnum):
    """The part of a network that a training changes."""

    HEAD = "head"
    LAST_BLOCK = "last block"
    """And the head."""
    ALL = "all"


STEP_TIMES: Mapping[Layers, float] = {Layers.HEAD: 0.35, Layers.LAST_BLOCK: 0.5, Layers.ALL: 1.0}
"""The time of a training step relative to one of all layers, as long as it has not been measured:
a third of a step is its forward pass, the rest is spared up to the first trained layer
(docs/results/retraining_configurations.json)."""


@dataclass(frozen=True)
class TrainingConfiguration:
    """One way to retrain a live tenant's model."""

    name: str
    """Empty for a tenant's only one."""
    epochs: int
    part: float = 1.0
    """The part of the samples of every class that is trained on."""
    layers: Layers = Layers.ALL
    memory_gib: float = 0.0
    """Memory that its instance has at least."""

    @property
    def work(self) -> float:
        """Its duration over that of one epoch of all layers on all samples."""
        return self.epochs * self.part * STEP_TIMES[self.layers]
