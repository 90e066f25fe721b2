"""Models for tests of the profiler: a plain class, one that is too large, one that crashes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from migrator.learn.model import Inputs
from support.means_model import Means
from support.tiny_model import Tiny


class Plain(Means):
    """Knows nothing of torch; nobody asks for its weights."""

    def save(self, path: Path, *, training: bool = False) -> None:
        raise AssertionError(f"the profiler saves no weights: {path}, {training}")

    def load(self, path: Path) -> None:
        raise AssertionError(f"the profiler loads no weights: {path}")


class Sized(Plain):
    """Takes images of several sizes, and is only measured with those of a scenario."""

    input_pixels = 8
    pixels: int

    @classmethod
    def build(cls, classes: int, seed: int, pixels: int = 8) -> Self:
        model = super().build(classes, seed)
        model.pixels = model.input_pixels = pixels
        return model

    def example(self, batch: int) -> Inputs:
        if (self.pixels, self.input_pixels) != (40, 16):
            raise ValueError(f"images of {self.pixels} pixels, sent with {self.input_pixels}")
        return super().example(batch)


class Greedy(Tiny):
    """Fits in batches below 4 only."""

    def logits(self, inputs: Tensor) -> Tensor:
        if len(inputs) >= 4:
            raise torch.OutOfMemoryError("tried to allocate everything")
        return super().logits(inputs)


class Fatal(Tiny):
    """Ends its process once the file named in the environment is there."""

    def logits(self, inputs: Tensor) -> Tensor:
        if Path(os.environ["MIGRATOR_TEST_FATAL"]).exists():
            print("the sky is falling", flush=True)
            os._exit(3)
        return super().logits(inputs)
