"""The packaged data sets: what each window's new classes do to a model, and what retraining takes.

Measured; the table is drifts.json, which says where and how.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from migrator.core.errors import InputError
from migrator.core.profile import Profile
from migrator.core.registry import pick
from migrator.core.scenario import Drift


@dataclass(frozen=True)
class Accuracies:
    """What was measured of one model: on held-out samples of all classes seen, per window."""

    pretrained: float
    """Before the first window, on the first classes."""
    pre: tuple[float, ...]
    """On the window's data, before its retraining."""
    estimated: tuple[float, ...]
    """What a little run on a sample had said of the retraining."""
    post: tuple[float, ...]
    """Of the model that serves once the retraining is done."""
    provenance: str


@dataclass(frozen=True)
class Dataset:
    """A class-incremental data set: every window brings new classes."""

    name: str
    classes: int
    """New ones in every window, and as many before the first."""
    samples: tuple[int, ...]
    """What every window's retraining learns from, replayed samples included."""
    epochs: int
    source: str
    measured: Mapping[str, Accuracies]
    """By model."""

    @property
    def windows(self) -> int:
        """Windows with new classes."""
        return len(self.samples)

    def classes_known(self, window: int) -> int:
        """Classes seen once window `window` (from 0) has come; those before the first for -1."""
        return self.classes * (window + 2)


@cache
def datasets() -> dict[str, Dataset]:
    """Every packaged data set by name."""
    text = files("migrator.workload").joinpath("drifts.json").read_text(encoding="utf-8")
    return {
        name: Dataset(
            name,
            entry["classes"],
            tuple(entry["samples"]),
            entry["epochs"],
            entry["source"],
            {model: _accuracies(each) for model, each in entry["measured"].items()},
        )
        for name, entry in json.loads(text)["datasets"].items()
    }


def drifts(dataset: str, profile: Profile) -> tuple[Drift, ...]:
    """What every window of the data set does to the profile's model."""
    known = pick("dataset", dataset, datasets())
    if profile.model not in known.measured:
        raise InputError(
            f"dataset: nobody has measured how accurate {profile.model} is on {known.name}; "
            f"use {' or '.join(known.measured)}, or give retraining.windows"
        )
    found = known.measured[profile.model]
    return tuple(
        Drift(pre, post, profile.training_s(samples * known.epochs), estimated)
        for pre, post, estimated, samples in zip(
            found.pre, found.post, found.estimated, known.samples, strict=True
        )
    )


def _accuracies(entry: Mapping[str, object]) -> Accuracies:
    def numbers(key: str) -> tuple[float, ...]:
        values = entry[key]
        assert isinstance(values, list)
        return tuple(values)

    pretrained = entry["pretrained"]
    assert isinstance(pretrained, float)
    return Accuracies(
        pretrained,
        numbers("pre"),
        numbers("estimated"),
        numbers("post"),
        str(entry["provenance"]),
    )
