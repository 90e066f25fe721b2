"""Which data and which weights a course is about: names may stay where contents change."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from migrator.learn.benchmarks.benchmark import Material
from migrator.learn.checkpoint import sha256_of


def material_identity(material: Material) -> dict[str, Any]:
    """Where the samples came from, and a digest of inputs and labels."""
    digest = hashlib.sha256()
    for samples in (material.train, material.held_out):
        for each in (samples.inputs, samples.labels, samples.arrives):
            digest.update(f"{each.dtype.str} {each.shape} ".encode())
            digest.update(np.ascontiguousarray(each).data)
    return {"source": material.source, "sha256": digest.hexdigest()}


def weights_identity(path: Path | None) -> dict[str, Any] | None:
    """Name and digest of the files a course begins with; None where it begins at random."""
    if path is None:
        return None
    files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
    return {"name": path.name, "sha256": {each.name: sha256_of(each) for each in files}}
