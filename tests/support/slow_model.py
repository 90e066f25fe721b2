"""A model that takes its time to load and to be kept: there is a moment to kill whoever does it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Self

from migrator.learn.model import Inputs, Labels
from support.means_model import Means

LOAD_S, KEEP_S, STEP_S, BUILD_S = 0.7, 1.2, 0.2, 6.0


class Slow(Means):
    """As `Means`, slowly."""

    def load(self, path: Path) -> None:
        time.sleep(LOAD_S)
        super().load(path)

    def train_step(self, inputs: Inputs, labels: Labels, lr: float) -> float:
        time.sleep(STEP_S)
        return super().train_step(inputs, labels, lr)

    def save(self, path: Path, *, training: bool = False) -> None:
        if training:  # after every epoch
            time.sleep(KEEP_S)
        super().save(path, training=training)


class ToldWhenBuilt(Means):
    """As `Means`, but its construction is written to the log."""

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        print("built", flush=True)
        return super().build(classes, seed)


class VerySlowlyBuilt(Means):
    """As `Means`, but its construction takes longer than an impatient daemon waits."""

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        time.sleep(BUILD_S)
        return super().build(classes, seed)


class OpensGpu(Means):
    """As `Means`, but the forkserver that builds it takes itself for one that uses a GPU."""

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        open_gpu()
        return super().build(classes, seed)


def open_gpu() -> None:
    """The forkserver takes itself for a process that uses a GPU from now on."""
    vars(sys.modules["__main__"])["has_opened_gpu"] = lambda: True
