"""NC-CIFAR-10: two of its ten classes in each of five scenarios."""

from __future__ import annotations

import pickle
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from migrator.learn.benchmarks.benchmark import Benchmark, Material, Origin
from migrator.learn.benchmarks.finding import found, missing, reading
from migrator.learn.benchmarks.images import Images, packed, split
from migrator.learn.model import Modality

_NAMES = (
    "cifar-10-batches-py",
    "cifar-10-python.tar.gz",
    "cifar10_subset_12k_webp.npz",
)
_BATCHES = (*(f"data_batch_{each}" for each in range(1, 6)), "test_batch")
_PIXELS = 32


class _PlainUnpickler(pickle.Unpickler):
    """Reads arrays, numbers and text: a batch file runs nothing that is in it."""

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
        """Only what arrays are made of."""
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a batch")
        return super().find_class(module, name)


class Cifar10(Benchmark):
    """The public python batches, as an archive or unpacked, or packed pictures."""

    def load(self, origin: Origin) -> Material:
        """The samples; the seed changes nothing."""
        path = found(_NAMES, origin.data)
        if path is None:
            raise missing(
                self.name,
                "cifar-10-python.tar.gz from www.cs.toronto.edu/~kriz/cifar.html",
                origin.data,
            )
        if path.suffix == ".npz":
            return packed(path, _PIXELS, self.classes_each, self.classes)
        with reading(path, "set of CIFAR-10 python batches"):
            parts = [(name, *self._pictures(each)) for name, each in _batches(path)]
            images = np.concatenate([each for _, each, _ in parts])
            labels = np.concatenate([each for _, _, each in parts])
            held = np.concatenate([np.full(len(each), n == "test_batch") for n, _, each in parts])
        return split(images, labels, held, self.classes_each, path.name)

    def _pictures(self, batch: dict[str, Any]) -> tuple[Images, NDArray[np.int64]]:
        """Pictures and labels of a batch; ValueError where it is none."""
        pictures, labels = np.asarray(batch["data"]), np.asarray(batch["labels"])
        if pictures.dtype != np.uint8 or labels.dtype.kind not in "iu":
            raise ValueError("numbers of another kind")
        if pictures.shape != (len(labels), 3 * _PIXELS**2) or not len(labels):
            raise ValueError("not a label for every picture")
        if labels.min() < 0 or labels.max() >= self.classes:
            raise ValueError("classes that there are not")
        return pictures.reshape(-1, 3, _PIXELS, _PIXELS), labels.astype(np.int64)


def _batches(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.is_dir():
        for name in _BATCHES:
            with (path / name).open("rb") as file:
                yield name, _unpickled(file)
        return
    with tarfile.open(path) as archive:
        for name in _BATCHES:
            member = archive.extractfile(f"cifar-10-batches-py/{name}")
            if member is None:
                raise KeyError(name)
            yield name, _unpickled(member)


def _unpickled(file: IO[bytes]) -> dict[str, Any]:
    read = _PlainUnpickler(file, encoding="bytes").load()
    return {key.decode(): value for key, value in read.items()}


BENCHMARKS = (
    Cifar10(
        "nc-cifar-10",
        scenarios=5,
        classes_each=2,
        modality=Modality.IMAGES,
        summary="CIFAR-10, 2 of its 10 classes at a time",
    ),
)
