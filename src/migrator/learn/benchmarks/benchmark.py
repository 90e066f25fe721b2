"""A benchmark: scenarios that bring new classes one after another, and how its files are read.

Each module of this package defines one benchmark in `BENCHMARKS`.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.learn.model import Inputs, Modality
from migrator.learn.samples import (
    Samples,
    Stream,
    WindowData,
    concatenate,
    random_stream,
    split_validation,
)
from migrator.learn.tokens import all_tokens

Encode = Callable[[Iterable[str]], NDArray[np.int32]]
"""Texts in, one row of token numbers per text out."""
VARIABLE = "MIGRATOR_DATA"
"""Environment variable with the folder that holds the files, itself or in a subfolder `sets`."""
Images = NDArray[np.uint8]
_AGAIN = "download it again"


@dataclass(frozen=True, eq=False)
class Material:
    """The samples of a benchmark; labels are numbered in the order in which classes arrive."""

    train: Samples
    held_out: Samples
    source: str
    """The files they were read from, in words."""


@dataclass(frozen=True)
class Origin:
    """The source of samples: files for most benchmarks, a seed for generated ones."""

    data: Path | None = None
    """A folder; None: the folder named by MIGRATOR_DATA."""
    seed: int = 0
    encode: Encode = all_tokens
    """How texts become a model's inputs."""
    pixels: int | None = None
    """Side of the pictures of a user's folder; None: their own. Other benchmarks have one size, and
    `resize_images` changes it."""


@dataclass(frozen=True)
class Benchmark(ABC):
    """A sequence of scenarios with new classes: scenario 0 is pre-training, the others windows."""

    name: str
    scenarios: int
    classes_each: int
    modality: Modality
    summary: str
    drifts: bool = False
    """Whether classes change over time, so that held-out samples are valid in one scenario only."""
    names: tuple[str, ...] = ()
    """The classes in the order in which they arrive; empty if they have no names."""

    @property
    def classes(self) -> int:
        """Number of classes of all scenarios."""
        return self.scenarios * self.classes_each

    @property
    def windows(self) -> int:
        """Number of scenarios with a retraining."""
        return self.scenarios - 1

    @abstractmethod
    def load(self, origin: Origin) -> Material:
        """Load or generate the samples; InputError says what to download if they are missing."""

    def last_window(self, windows: int | None) -> int:
        """The last window to run, all if `windows` is None; InputError if there are fewer."""
        last = self.windows if windows is None else windows
        if not 0 <= last <= self.windows:
            raise InputError(
                f"--windows: {self.name} has {self.windows} windows; give 0 to {self.windows}"
            )
        return last

    def classes_by(self, scenario: int) -> int:
        """Number of classes that have arrived when a scenario begins, with its own."""
        return min((scenario + 1) * self.classes_each, self.classes)

    def scenario_of(self, label: int) -> int:
        """The scenario in which a class arrives."""
        return label // self.classes_each


def require_every_class(benchmark: Benchmark, material: Material) -> None:
    """InputError names the first class without training or held-out samples."""
    for samples, what in ((material.train, "to train on"), (material.held_out, "held out")):
        for label in range(benchmark.classes):
            scenario = benchmark.scenario_of(label)
            if not ((samples.labels == label) & (samples.arrives == scenario)).any():
                raise InputError(
                    f"{benchmark.name}: {material.source} has no samples {what} of class {label}, "
                    f"which arrives in scenario {scenario}; download the complete data set"
                )


def limit_samples(material: Material, per_class: int | None, seed: int) -> Material:
    """The material with at most `per_class` training samples of every class and scenario."""
    if per_class is None:
        return material
    draw = random_stream(seed, Stream.SAMPLES_LIMITED)
    train = material.train
    parts = [
        train.rows(train.arrives == scenario).at_most(per_class, draw)
        for scenario in np.unique(train.arrives)
    ]
    return replace(material, train=concatenate(parts))


def reorder_classes(benchmark: Benchmark, material: Material, seed: int) -> Material:
    """The material with its classes in another order, for benchmarks that do not drift."""
    if benchmark.drifts:
        raise InputError(
            f"--shuffle: {benchmark.name} is generated in the order of its classes; "
            "use another --seed instead"
        )
    order = random_stream(seed, Stream.ORDER_OF_CLASSES).permutation(benchmark.classes)

    def renamed(samples: Samples) -> Samples:
        labels = order[samples.labels].astype(np.int64)
        return Samples(samples.inputs, labels, labels // benchmark.classes_each)

    return Material(renamed(material.train), renamed(material.held_out), material.source)


def window_data(
    benchmark: Benchmark, material: Material, scenario: int, memory: int, seed: int
) -> WindowData:
    """The samples of a scenario's retraining, with `memory` samples of every earlier class."""
    train, held_out = material.train, material.held_out
    first = scenario * benchmark.classes_each
    earlier = train.rows((train.arrives < scenario) & (train.labels < first))
    came = held_out.arrives == scenario if benchmark.drifts else held_out.arrives <= scenario
    reported, validation = split_validation(held_out.rows(came), seed)
    return WindowData(
        new=train.rows(train.arrives == scenario),
        # the same ones in every window, unless classes drift
        replay=earlier.at_most(memory, random_stream(seed, Stream.MEMORY)),
        held_out=reported,
        validation=validation,
        new_classes=frozenset(range(first, benchmark.classes_by(scenario))),
    )


@dataclass(frozen=True)
class FileBenchmark(Benchmark):
    """A benchmark whose samples are read from a file or folder."""

    files: tuple[str, ...] = ()
    """Names that its data may have; the first that exists is read."""
    download: str = ""
    """Where to get it, in words."""

    @abstractmethod
    def read(self, path: Path) -> Material:
        """Read one of its files or folders; texts as an array of strings."""

    def load(self, origin: Origin) -> Material:
        """Find the data and read it; the seed is not used."""
        named = os.environ.get(VARIABLE)
        folder = origin.data or (Path(named) if named else None)
        places = (folder, folder / "sets") if folder else ()
        for path in [place / name for name in self.files for place in places]:
            if path.exists():
                material = self.read(path)
                return (
                    material
                    if self.modality is Modality.IMAGES
                    else encoded(material, origin.encode)
                )
        where = f"where {VARIABLE} points" if named else "known"
        where = f"under {origin.data}" if origin.data is not None else where
        raise InputError(
            f"{self.name}: its data is not {where}; get {self.download}, put it into a folder and "
            f"name that with --data or {VARIABLE} (docs/learning.md), or use nc-synthetic"
        )


def encoded(material: Material, encode: Encode) -> Material:
    """The material with its texts as token numbers."""
    train, held_out = (
        replace(samples, inputs=encode(samples.inputs.tolist()))
        for samples in (material.train, material.held_out)
    )
    return Material(train, held_out, material.source)


@contextmanager
def reading_data(path: Path, what: str, remedy: str = _AGAIN) -> Iterator[None]:
    """Turn any exception while reading a file into an InputError; `what` describes the file."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except PermissionError as error:
        raise InputError(f"{path}: permission denied; make it readable for you") from error
    except Exception as error:
        # archives, pickles, arrays and pictures fail in dozens of ways
        raise damaged_file(path, what, remedy) from error


def damaged_file(path: Path, what: str, remedy: str = _AGAIN) -> InputError:
    """The error for a file that is not what it should be."""
    return InputError(f"{path}: not a {what}, or damaged; {remedy}")


def pillow() -> ModuleType:
    """Pillow's module for pictures; InputError with the install command if it is missing."""
    try:
        return import_module("PIL.Image")
    except ModuleNotFoundError as error:
        raise InputError(
            "pictures are read with Pillow, which is not installed: "
            "pip install 'migrator-gpu[learn]'"
        ) from error


def decode_images(blobs: Sequence[bytes | Path], pixels: int) -> Images:
    """Pictures in any format Pillow reads, as uint8 (n, 3, pixels, pixels)."""
    image = pillow()
    out = np.empty((len(blobs), 3, pixels, pixels), np.uint8)
    for at, blob in enumerate(blobs):
        with image.open(io.BytesIO(blob) if isinstance(blob, bytes) else blob) as opened:
            picture = opened.convert("RGB")
            if picture.size != (pixels, pixels):
                picture = picture.resize((pixels, pixels), image.Resampling.BILINEAR)
            out[at] = np.asarray(picture).transpose(2, 0, 1)
    return out


def resize_images(images: Images, pixels: int) -> Images:
    """Pictures as uint8 (n, 3, pixels, pixels); the same array if they have that size."""
    if images.shape[2:] == (pixels, pixels):
        return images
    image = pillow()
    out = np.empty((len(images), 3, pixels, pixels), np.uint8)
    for at, channels in enumerate(images):
        picture = image.fromarray(np.ascontiguousarray(channels.transpose(1, 2, 0)))
        resized = picture.resize((pixels, pixels), image.Resampling.BILINEAR)
        out[at] = np.asarray(resized).transpose(2, 0, 1)
    return out


def load_packed(path: Path, pixels: int, benchmark: Benchmark) -> Material:
    """An .npz with `blob`, `offsets`, `label` and `is_test`; picture i is blob[offsets[i]:...]."""
    with reading_data(path, "set of packed pictures"):
        # opened here: numpy leaves the file of a damaged archive open
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            blob, offsets = arrays["blob"], arrays["offsets"]
            labels, held = arrays["label"].astype(np.int64), arrays["is_test"].astype(bool)
        bounds = pairwise(offsets)
        pictures = decode_images([blob[a:b].tobytes() for a, b in bounds], pixels)
        if not len(labels) == len(held) == len(pictures):
            raise damaged_file(path, "set of packed pictures with a label each")
        if not set(np.unique(labels)) <= set(range(benchmark.classes)):
            raise damaged_file(path, f"set of {benchmark.classes} classes")
    return split_held_out(pictures, labels, held, benchmark, path.name)


def split_held_out(
    inputs: Inputs,
    labels: NDArray[np.int64],
    held: NDArray[np.bool_],
    benchmark: Benchmark,
    source: str,
) -> Material:
    """Training and held-out samples, each arriving in the scenario of its class."""
    every = Samples(inputs, labels, labels // benchmark.classes_each)
    return Material(every.rows(~held), every.rows(held), source)
