"""Images from files: packed ones, and folders of pictures. Needs Pillow only where it decodes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.learn.benchmarks.benchmark import Material
from migrator.learn.benchmarks.finding import damaged, reading
from migrator.learn.samples import Samples

Images = NDArray[np.uint8]


def decoded(blobs: Sequence[bytes | Path], pixels: int) -> Images:
    """Pictures in any format Pillow reads, as uint8 (n, 3, pixels, pixels)."""
    try:
        image = import_module("PIL.Image")
    except ModuleNotFoundError as error:
        raise InputError(
            "pictures are read with Pillow, which is not installed: pip install 'migrator[learn]'"
        ) from error
    out = np.empty((len(blobs), 3, pixels, pixels), np.uint8)
    for at, blob in enumerate(blobs):
        with image.open(io.BytesIO(blob) if isinstance(blob, bytes) else blob) as opened:
            picture = opened.convert("RGB")
            if picture.size != (pixels, pixels):
                picture = picture.resize((pixels, pixels), image.Resampling.BILINEAR)
            out[at] = np.asarray(picture).transpose(2, 0, 1)
    return out


def packed(path: Path, pixels: int, classes_each: int, classes: int) -> Material:
    """An .npz with `blob`, `offsets`, `label` and `is_test`; picture i is blob[offsets[i]:...]."""
    with reading(path, "set of packed pictures"):
        # opened here: of a damaged archive numpy leaves the file open
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            blob, offsets = arrays["blob"], arrays["offsets"]
            labels, held = arrays["label"].astype(np.int64), arrays["is_test"].astype(bool)
        bounds = pairwise(offsets)
        pictures = decoded([blob[a:b].tobytes() for a, b in bounds], pixels)
        if not len(labels) == len(held) == len(pictures):
            raise damaged(path, "set of packed pictures with a label each")
        if not set(np.unique(labels)) <= set(range(classes)):
            raise damaged(path, f"set of {classes} classes")
    return split(pictures, labels, held, classes_each, path.name)


def split(
    images: Images,
    labels: NDArray[np.int64],
    held: NDArray[np.bool_],
    classes_each: int,
    source: str,
) -> Material:
    """Training and held-out samples, arriving with their class."""
    every = Samples(images, labels, labels // classes_each)
    return Material(every.rows(~held), every.rows(held), source)
