"""Classes that are almost a model: each has the methods, and one of them is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np

from support.means_model import Means


class BuildRaises(Means):
    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        raise ValueError(f"no network for {classes} and {seed} today")


class BuildNothing(Means):
    @classmethod
    def build(cls, classes: int, seed: int) -> Any:
        del classes, seed


class FlatScores(Means):
    def infer(self, inputs: Any) -> Any:
        return np.zeros(len(inputs), np.float32)


class ListedScores(Means):
    def infer(self, inputs: Any) -> Any:
        return super().infer(inputs).tolist()


class StepRaises(Means):
    def train_step(self, inputs: Any, labels: Any, lr: float) -> Any:
        raise RuntimeError(f"boom at {lr} of {len(inputs)} and {len(labels)}")


class NoCopy(Means):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot copy a socket")


class SameCopy(Means):
    def __deepcopy__(self, memo: Any) -> Any:
        return self


class SaveElsewhere(Means):
    def save(self, path: Path, *, training: bool = False) -> None:
        del training
        np.savez(path, sums=self.sums, counts=self.counts)  # which adds .npz to the name


class LoadRaises(Means):
    def load(self, path: Path) -> None:
        raise RuntimeError(f"cannot load {path.name}")


class LoadRefusesSaved(Means):
    def save(self, path: Path, *, training: bool = False) -> None:
        if training:
            super().save(path)
        else:
            path.write_bytes(b"no safetensors")


class LoadsNan(Means):
    """The result of a retraining answers with NaN."""

    def load(self, path: Path) -> None:
        super().load(path)
        if path.name == "retrained.safetensors":
            self.sums[:] = np.nan
            self.counts[:] = 1


class RateInWords(Means):
    learning_rate: Any = "1e-3"
