"""The packaged data sets: what each window's new classes do to a model, and what retraining takes.

The table with its assumptions is drifts.json.
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
class Dataset:
    """A class-incremental data set: every window brings new classes."""

    name: str
    classes: int
    """New ones in every window, and as many before the first."""
    samples: int
    """Training samples of a window's new classes."""
    epochs: int
    source: str
    accuracy_post: Mapping[str, tuple[float, ...]]
    """Model -> accuracy before the first window, then after every window's retraining."""

    @property
    def windows(self) -> int:
        """Windows with new classes."""
        return len(next(iter(self.accuracy_post.values()))) - 1

    def classes_known(self, window: int) -> int:
        """Classes seen once window `window` (from 0) has come; those before the first for -1."""
        return self.classes * (window + 2)


@cache
def datasets() -> dict[str, Dataset]:
    """Every packaged data set by name."""
    text = files("migrator.scenario").joinpath("drifts.json").read_text(encoding="utf-8")
    return {
        name: Dataset(
            name,
            entry["classes"],
            entry["samples"],
            entry["epochs"],
            entry["source"],
            {model: tuple(each) for model, each in entry["accuracy_post"].items()},
        )
        for name, entry in json.loads(text)["datasets"].items()
    }


def drifts(dataset: str, profile: Profile) -> tuple[Drift, ...]:
    """What every window of the data set does to the profile's model."""
    known = pick("dataset", dataset, datasets())
    if profile.model not in known.accuracy_post:
        raise InputError(
            f"dataset: nobody has written down how accurate {profile.model} is on {known.name}; "
            f"use {' or '.join(known.accuracy_post)}, or give retraining.windows"
        )
    accuracy = known.accuracy_post[profile.model]
    seconds = profile.training_s(known.samples * known.epochs)
    return tuple(
        Drift(
            # The old model knows nothing of the new classes.
            accuracy_pre=accuracy[window]
            * known.classes_known(window - 1)
            / known.classes_known(window),
            accuracy_post=accuracy[window + 1],
            seconds=seconds,
        )
        for window in range(known.windows)
    )
