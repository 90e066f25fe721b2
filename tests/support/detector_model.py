"""A detector as a user might write it, numpy only: it finds the bright square of a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from migrator.core.tensors import TensorSpec, to_records
from migrator.learn.samples import Samples

Arrays = dict[str, NDArray[Any]]
SIDE, WIDTH = 16, 4


class Detector:
    """A box begins at the first bright pixel, plus a bias that is learned."""

    inputs = (TensorSpec("picture", "UINT8", (SIDE, SIDE)), TensorSpec("scale", "FP64"))
    outputs = (TensorSpec("box", "FP32", (4,)), TensorSpec("empty", "BOOL"))
    labels = (TensorSpec("place", "FP32", (4,)), TensorSpec("visible", "BOOL"))
    learning_rate = 1.0

    def __init__(self) -> None:
        self.bias = np.full(4, 3.0, np.float32)

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        del classes, seed
        return cls()

    def to(self, device: str) -> None:
        assert device == "cpu"

    def infer(self, inputs: Arrays) -> Arrays:
        pictures = inputs["picture"]
        first = pictures.reshape(len(pictures), -1).argmax(axis=1)
        corners = np.stack((first // SIDE, first % SIDE), 1)
        boxes = np.concatenate((corners, corners + WIDTH), 1) + self.bias
        boxes = boxes * inputs["scale"][:, None]
        return {"box": boxes.astype(np.float32), "empty": pictures.max(axis=(1, 2)) == 0}

    def is_correct(self, outputs: Arrays, label: Arrays) -> bool:
        """Both say that there is nothing, or the boxes have half of their area in common."""
        if outputs["empty"] or not label["visible"]:
            return bool(outputs["empty"] != label["visible"])
        box, place = outputs["box"], label["place"]
        low, high = np.maximum(box[:2], place[:2]), np.minimum(box[2:], place[2:])
        common = np.maximum(high - low, 0).prod()
        areas = (box[2:] - box[:2]).prod() + (place[2:] - place[:2]).prod()
        return bool(common > 0.5 * (areas - common))

    def train_step(self, inputs: Arrays, labels: Arrays, lr: float) -> float:
        assert inputs["picture"].flags.c_contiguous
        apart = (self.infer(inputs)["box"] - labels["place"])[labels["visible"]]
        self.bias -= np.float32(min(lr, 1.0)) * apart.mean(axis=0)
        return float((apart**2).mean())

    def save(self, path: Path, *, training: bool = False) -> None:
        del training
        path.write_bytes(save({"bias": self.bias}))

    def load(self, path: Path) -> None:
        self.bias = load_file(path)["bias"]


class Picky(Detector):
    """Raises for labels that it does not expect."""

    def is_correct(self, outputs: Arrays, label: Arrays) -> bool:
        if label["place"][0] < 0:
            raise ValueError("a box outside of the picture")
        return super().is_correct(outputs, label)


def scenes(count: int, seed: int) -> Samples:
    """Pictures with a square at a random place, and where it is; every eighth is empty."""
    draw = np.random.default_rng(seed)
    corners = draw.integers(0, SIDE - WIDTH, (count, 2))
    visible = np.arange(count) % 8 != 7
    pictures = np.zeros((count, SIDE, SIDE), np.uint8)
    for row in np.flatnonzero(visible):
        top, left = corners[row]
        pictures[row, top : top + WIDTH, left : left + WIDTH] = 255
    places = np.concatenate((corners, corners + WIDTH), 1).astype(np.float32)
    return Samples(
        to_records({"picture": pictures, "scale": np.ones(count)}),
        to_records({"place": places, "visible": visible}),
        np.zeros(count, np.int64),
    )
