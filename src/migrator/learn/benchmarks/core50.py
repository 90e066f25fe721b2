"""NC-CORe50: five of its fifty objects in each of ten scenarios.

Where CORe50 is not to be had, fifty classes of Tiny ImageNet stand in: as many classes, and
pictures of 64 pixels instead of 128.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from migrator.learn.benchmarks.benchmark import (
    Benchmark,
    Material,
    Origin,
    damaged_file,
    decode_images,
    find_data,
    load_packed,
    missing_data,
    reading_data,
    split_held_out,
)
from migrator.learn.model import Modality

_ORIGINAL = "core50_128x128"
_STAND_IN = "tinyimagenet_50class_10k_jpeg.npz"
_PIXELS = 64
_HELD_OUT = frozenset({"s3", "s7", "s10"})
"""Sessions that the data set's authors hold out."""
_EVERY = 20
"""Every 20th frame of a film is used: neighbours look alike."""


class Core50(Benchmark):
    """The public folders s1 to s11 with o1 to o50 each, or the packed stand-in."""

    def load(self, origin: Origin) -> Material:
        """Load the samples; the seed is not used."""
        path = find_data((_ORIGINAL, _STAND_IN), origin.data)
        if path is None:
            raise missing_data(
                self.name,
                "core50_128x128.zip from vlomonaco.github.io/core50, unpacked",
                origin.data,
            )
        if path.suffix != ".npz":
            return self._original(path)
        material = load_packed(path, _PIXELS, self.classes_each, self.classes)
        source = f"{path.name} (Tiny ImageNet, in place of CORe50)"
        return Material(material.train, material.held_out, source)

    def _original(self, folder: Path) -> Material:
        pictures, labels, held = [], [], []
        for film in sorted(folder.glob("s*/o*")):
            session, thing = film.parent.name, film.name
            frames = sorted(film.glob("*.png"))[::_EVERY]
            if not thing[1:].isdecimal() or not 1 <= int(thing[1:]) <= self.classes:
                raise damaged_file(film, "film of one of CORe50's objects, o1 to o50")
            pictures += frames
            labels += [int(thing[1:]) - 1] * len(frames)
            held += [session in _HELD_OUT] * len(frames)
        if len(set(labels)) < self.classes or not any(held) or all(held):
            raise damaged_file(folder, f"copy of CORe50 with {self.classes} objects in s1 to s11")
        with reading_data(folder, "folder of CORe50 pictures"):
            images = decode_images(pictures, _PIXELS)
        return split_held_out(
            images, np.array(labels, np.int64), np.array(held), self.classes_each, folder.name
        )


BENCHMARKS = (
    Core50(
        "nc-core50",
        scenarios=10,
        classes_each=5,
        modality=Modality.IMAGES,
        summary="CORe50 (or 50 classes of Tiny ImageNet in its place), 5 at a time",
    ),
)
