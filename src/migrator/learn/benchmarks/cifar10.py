"""NC-CIFAR-10."""

from __future__ import annotations

import pickle
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from migrator.learn.benchmarks.benchmark import (
    FileBenchmark,
    Images,
    Material,
    load_packed,
    reading_data,
    split_held_out,
)
from migrator.learn.model import Modality

_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_CIFAR_PIXELS = 32
_CIFAR_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


class _PlainUnpickler(pickle.Unpickler):
    """Reads arrays, numbers and text only, so that a batch file cannot run code."""

    _ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        """A class that arrays consist of; any other is refused."""
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} does not belong in a batch")
        return super().find_class(module, name)


class Cifar10(FileBenchmark):
    """The public python batches, as an archive or unpacked, or packed pictures."""

    def read(self, path: Path) -> Material:
        if path.suffix == ".npz":
            return load_packed(path, _CIFAR_PIXELS, self)
        with reading_data(path, "set of CIFAR-10 python batches"):
            names, batches = zip(*_batches(path), strict=True)
            images, labels = zip(*map(self._pictures, batches), strict=True)
            held = np.repeat(np.array(names) == "test_batch", [len(batch) for batch in labels])
        pictures, classes = np.concatenate(images), np.concatenate(labels)
        return split_held_out(pictures, classes, held, self, path.name)

    def _pictures(self, batch: dict[str, Any]) -> tuple[Images, NDArray[np.int64]]:
        """Pictures and labels of a batch; ValueError if it is not a batch."""
        pictures, labels = np.asarray(batch["data"]), np.asarray(batch["labels"])
        if pictures.dtype != np.uint8 or labels.dtype.kind not in "iu":
            raise ValueError("wrong types")
        if pictures.shape != (len(labels), 3 * _CIFAR_PIXELS**2) or not len(labels):
            raise ValueError("labels do not match pictures")
        if labels.min() < 0 or labels.max() >= self.classes:
            raise ValueError("unknown classes")
        return pictures.reshape(-1, 3, _CIFAR_PIXELS, _CIFAR_PIXELS), labels.astype(np.int64)


def _batches(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.is_dir():
        for name in _BATCHES:
            with (path / name).open("rb") as file:
                yield name, _unpickle(file)
        return
    with tarfile.open(path) as archive:
        for name in _BATCHES:
            member = archive.extractfile(f"cifar-10-batches-py/{name}")
            if member is None:
                raise KeyError(name)
            yield name, _unpickle(member)


def _unpickle(file: IO[bytes]) -> dict[str, Any]:
    read = _PlainUnpickler(file, encoding="bytes").load()
    return {key.decode(): value for key, value in read.items()}


BENCHMARKS = (
    Cifar10(
        "nc-cifar-10",
        scenarios=5,
        classes_each=2,
        modality=Modality.IMAGES,
        summary="CIFAR-10, 2 of its 10 classes at a time",
        names=_CIFAR_NAMES,
        files=("cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar10_subset_12k_webp.npz"),
        download="cifar-10-python.tar.gz from www.cs.toronto.edu/~kriz/cifar.html",
    ),
)
