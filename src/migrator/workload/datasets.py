"""The packaged class-incremental data sets, with measured accuracies.

A data set says how each window's new classes affect a model and how much work a retraining is. All
values are measured. They are in drifts.json, which documents where and how."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from pydantic import TypeAdapter

from migrator.core.errors import InputError
from migrator.core.profiles import Profile
from migrator.core.registry import pick
from migrator.core.scenario import Drift


@dataclass(frozen=True)
class Accuracies:
    """Measured accuracies of one model per window, on held-out samples of all classes seen."""

    pretrained: float
    """Before the first window, on the first classes."""
    pre: tuple[float, ...]
    """On the window's data, before its retraining."""
    estimated: tuple[float, ...]
    """Estimate of a short training run on a sample, made before the retraining."""
    post: tuple[float, ...]
    """After the retraining, of the model that serves then."""
    provenance: str
    epochs: int | None = None
    """Of this model's retrainings; None: those of the data set."""


@dataclass(frozen=True)
class Dataset:
    """A class-incremental data set: each window adds new classes."""

    name: str
    classes: int
    """Number of new classes per window, which is also the number before the first."""
    samples: tuple[int, ...]
    """Number of training samples of each window's retraining, including replayed samples."""
    epochs: int
    source: str
    measured: Mapping[str, Accuracies]
    """Accuracies by model."""

    @property
    def windows(self) -> int:
        return len(self.samples)


@cache
def datasets() -> dict[str, Dataset]:
    """All packaged data sets by name."""
    text = files("migrator.workload").joinpath("drifts.json").read_text(encoding="utf-8")
    packaged = json.loads(text)["datasets"]
    adapter = TypeAdapter(Dataset)
    return {
        name: adapter.validate_python({"name": name, **entry}) for name, entry in packaged.items()
    }


def learned_a_window_later(given: tuple[Drift, ...]) -> tuple[Drift, ...]:
    """The drifts if a window's data is labelled during the window, from those if it is labelled
    before.

    The retraining in a window then learns the data of the window before. Afterwards the model has
    the accuracy that `given` has before the window's own retraining; before that, it is one drift
    more behind. There is nothing to learn in the first window.
    """
    later: list[Drift] = []
    for window, drift in enumerate(given):
        before = given[window - 1] if window else None
        if before is None or before.seconds is None:
            later.append(Drift(drift.accuracy_pre, drift.accuracy_pre, None))
            continue
        kept = drift.accuracy_pre / before.accuracy_post if before.accuracy_post else 1.0
        later.append(
            Drift(
                min(1.0, before.accuracy_pre * kept),
                drift.accuracy_pre,
                before.seconds,
                min(1.0, before.accuracy_expected * kept),
                before.configuration,
                tuple(
                    replace(
                        other,
                        accuracy_post=min(1.0, other.accuracy_post * kept),
                        accuracy_estimated=min(1.0, other.accuracy_expected * kept),
                    )
                    for other in before.others
                ),
            )
        )
    return tuple(later)


def drifts(dataset: str, profile: Profile) -> tuple[Drift, ...]:
    """The drift that each window of the data set causes for the profile's model."""
    if dataset.startswith("folder:"):
        raise InputError(
            f"dataset: accuracies on {dataset[:100]} are not packaged; name your own samples as "
            "live.benchmark, and for simulations give retraining.windows"
        )
    data = pick("dataset", dataset, datasets())
    if profile.model not in data.measured:
        raise InputError(
            f"dataset: no accuracies of {profile.model} on {data.name} are measured; "
            f"use {' or '.join(data.measured)}, or give retraining.windows"
        )
    accuracies = data.measured[profile.model]
    epochs = accuracies.epochs or data.epochs
    return tuple(
        Drift(pre, post, profile.training_s(samples * epochs), estimated)
        for pre, post, estimated, samples in zip(
            accuracies.pre, accuracies.post, accuracies.estimated, data.samples, strict=True
        )
    )
