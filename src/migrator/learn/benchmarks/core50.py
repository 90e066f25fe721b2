"""NC-CORe50, or 50 classes of Tiny ImageNet in its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from migrator.learn.benchmarks.benchmark import (
    FileBenchmark,
    Material,
    damaged_file,
    decode_images,
    load_packed,
    reading_data,
    split_held_out,
)
from migrator.learn.model import Modality

_CORE_PIXELS = 64


_HELD_OUT_SESSIONS = frozenset({"s3", "s7", "s10"})
"""Sessions that the data set's authors hold out."""


_EVERY = 20
"""Every 20th frame of a film is used: neighbours look alike."""


class Core50(FileBenchmark):
    """The public folders s1 to s11 with o1 to o50 each, or the packed stand-in."""

    def read(self, path: Path) -> Material:
        if path.suffix != ".npz":
            return self._original(path)
        source = f"{path.name} (Tiny ImageNet, in place of CORe50)"
        return replace(load_packed(path, _CORE_PIXELS, self), source=source)

    def _original(self, folder: Path) -> Material:
        pictures, labels, held = [], [], []
        for film in sorted(folder.glob("s*/o*")):
            session, thing = film.parent.name, film.name
            frames = sorted(film.glob("*.png"))[::_EVERY]
            if not thing[1:].isdecimal() or not 1 <= int(thing[1:]) <= self.classes:
                raise damaged_file(film, "film of one of CORe50's objects, o1 to o50")
            pictures += frames
            labels += [int(thing[1:]) - 1] * len(frames)
            held += [session in _HELD_OUT_SESSIONS] * len(frames)
        if len(set(labels)) < self.classes or not any(held) or all(held):
            raise damaged_file(folder, f"copy of CORe50 with {self.classes} objects in s1 to s11")
        with reading_data(folder, "folder of CORe50 pictures"):
            images = decode_images(pictures, _CORE_PIXELS)
        return split_held_out(images, np.array(labels, np.int64), np.array(held), self, folder.name)


BENCHMARKS = (
    Core50(
        "nc-core50",
        scenarios=10,
        classes_each=5,
        modality=Modality.IMAGES,
        summary="CORe50 (or 50 classes of Tiny ImageNet in its place), 5 at a time",
        files=("core50_128x128", "tinyimagenet_50class_10k_jpeg.npz"),
        download="core50_128x128.zip from vlomonaco.github.io/core50, unpacked",
    ),
)
