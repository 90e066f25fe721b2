"""A model for tests: one layer, a millisecond a step. Also a user's own class, by import path."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from migrator.learn.model import Inputs, Modality
from migrator.learn.torch_model import TorchModel, seeded_weights

SIDE = 16


class Tiny(TorchModel):
    """Tells the pictures of nc-synthetic apart."""

    name = "tiny"
    summary = "one layer"
    modality = Modality.IMAGES
    learning_rate = 3e-3
    head = "1."

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        with seeded_weights(seed):
            network = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, classes))
        return cls(network, classes, seed)

    def logits(self, inputs: Tensor) -> Tensor:
        said: Tensor = self.network((inputs.float() - 128) / 64)
        return said

    def example(self, batch: int) -> Inputs:
        return np.zeros((batch, 3, SIDE, SIDE), np.uint8)


class Hot(Tiny):
    """Its loss leaves the numbers at once."""

    learning_rate = 1e30


class Threaded(Tiny):
    """Computes with two threads, and writes what its training imported of torch to the log."""

    _known: ClassVar[frozenset[str]] = frozenset()

    def load(self, path: Path) -> None:
        super().load(path)
        torch.set_num_threads(2)
        float((torch.ones(1 << 20) * 2).sum())
        print(torch.get_num_threads(), "threads", flush=True)
        type(self)._known = frozenset(sys.modules)

    def end_training(self) -> None:
        super().end_training()
        new = sorted(
            module for module in set(sys.modules) - self._known if module.startswith("torch.")
        )
        print("imported:", *(new or ["none"]), flush=True)
