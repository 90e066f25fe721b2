"""What a benchmark is: scenarios that bring new classes, one after another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from migrator.core.errors import InputError
from migrator.learn.model import Modality
from migrator.learn.samples import Samples, WindowData
from migrator.learn.streams import Stream, drawn


@dataclass(frozen=True, eq=False)
class Material:
    """A benchmark's samples as loaded; labels are in the order in which classes come."""

    train: Samples
    held_out: Samples
    source: str
    """Which files they came from, in words."""


@dataclass(frozen=True)
class Origin:
    """Where samples come from: files for most benchmarks, a seed for those that are made up."""

    data: Path | None = None
    """A folder; None: where MIGRATOR_DATA points."""
    seed: int = 0


@dataclass(frozen=True)
class Benchmark(ABC):
    """New classes in every scenario; the first is for pre-training, every other is a window."""

    name: str
    scenarios: int
    classes_each: int
    modality: Modality
    summary: str
    drifts: bool = False
    """Whether classes change their looks, so that held-out samples are of their scenario only."""

    @property
    def classes(self) -> int:
        """Of all scenarios."""
        return self.scenarios * self.classes_each

    @property
    def windows(self) -> int:
        """Scenarios that a model is retrained for."""
        return self.scenarios - 1

    @abstractmethod
    def load(self, origin: Origin) -> Material:
        """The samples, from files or from the seed; InputError says what to get where missing."""

    def last_window(self, windows: int | None) -> int:
        """The last of the first `windows` windows, of all where None; InputError beyond them."""
        last = self.windows if windows is None else windows
        if not 0 <= last <= self.windows:
            raise InputError(
                f"--windows: {self.name} has {self.windows} windows; give 0 to {self.windows}"
            )
        return last

    def scenario_of(self, label: int) -> int:
        """The scenario a class comes with."""
        return label // self.classes_each


def require_every_class(benchmark: Benchmark, material: Material) -> None:
    """InputError names the first class that has nothing to learn from or to be judged on."""
    for samples, what in ((material.train, "to train on"), (material.held_out, "held out")):
        for label in range(benchmark.classes):
            scenario = benchmark.scenario_of(label)
            if not ((samples.labels == label) & (samples.arrives == scenario)).any():
                raise InputError(
                    f"{benchmark.name}: {material.source} has no samples {what} of class {label}, "
                    f"which comes with scenario {scenario}; get the whole data set"
                )


def limited(material: Material, per_class: int | None, seed: int) -> Material:
    """With at most so many training samples of every class and scenario."""
    if per_class is None:
        return material
    draw = drawn(seed, Stream.SAMPLES_LIMITED)
    parts = [
        material.train.rows(material.train.arrives == each).at_most(per_class, draw)
        for each in np.unique(material.train.arrives)
    ]
    train = parts[0]
    for each in parts[1:]:
        train = train.joined(each)
    return Material(train, material.held_out, material.source)


def reordered(benchmark: Benchmark, material: Material, seed: int) -> Material:
    """With the classes coming in another order; for benchmarks whose classes keep their looks."""
    if benchmark.drifts:
        raise InputError(
            f"--shuffle: {benchmark.name} is made in the order of its classes; give another seed"
        )
    order = drawn(seed, Stream.ORDER_OF_CLASSES).permutation(benchmark.classes)

    def renamed(samples: Samples) -> Samples:
        labels = order[samples.labels].astype(np.int64)
        return Samples(samples.inputs, labels, labels // benchmark.classes_each)

    return Material(renamed(material.train), renamed(material.held_out), material.source)


def window_data(
    benchmark: Benchmark, material: Material, scenario: int, memory: int, seed: int
) -> WindowData:
    """What retraining for a scenario sees: its samples, `memory` of every earlier class."""
    train, held_out = material.train, material.held_out
    first = scenario * benchmark.classes_each
    earlier = train.rows((train.arrives < scenario) & (train.labels < first))
    came = held_out.arrives == scenario if benchmark.drifts else held_out.arrives <= scenario
    return WindowData(
        new=train.rows(train.arrives == scenario),
        # the same ones in every window, unless classes drift: then all their looks so far count
        replay=earlier.at_most(memory, drawn(seed, Stream.MEMORY)),
        held_out=held_out.rows(came),
        new_classes=frozenset(range(first, first + benchmark.classes_each)),
    )
