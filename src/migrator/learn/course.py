"""A whole benchmark: pre-train, then window by window estimate, retrain, adopt."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from migrator.core.errors import InputError
from migrator.learn.benchmarks.benchmark import (
    Benchmark,
    Material,
    limited,
    reordered,
    require_every_class,
    window_data,
)
from migrator.learn.checkpoint import Checkpoints
from migrator.learn.course_folder import CourseFolder
from migrator.learn.course_result import CourseResult, WindowRow, row_from, row_of
from migrator.learn.estimation import Past, estimate
from migrator.learn.identity import material_identity, weights_identity
from migrator.learn.model import Model
from migrator.learn.registry import benchmark, model_class
from migrator.learn.retraining import Settings, retrain
from migrator.learn.training import accuracy
from migrator.learn.trial import built, calling, require_works

MEMORY = 200
"""Samples of every earlier class that are replayed, unless told otherwise."""

Progress = Callable[[int, str], AbstractContextManager[Callable[[], None]]]
"""Given a number of steps and what they are, something to call after each."""


@dataclass(frozen=True)
class CourseSettings:
    """What is run. On a CPU two courses with the same settings give the same accuracies."""

    benchmark: str
    model: str
    retraining: Settings
    memory: int = MEMORY
    per_class: int | None = None
    """Training samples of a class in a scenario; None: all there are."""
    pixels: int | None = None
    """Side of the images the network sees; None: its own."""
    shuffle: bool = False
    """Whether the seed decides in which order classes come."""
    weights: Path | None = None
    """A file or folder to begin with, instead of random weights."""


@contextmanager
def unwatched(_steps: int, _what: str) -> Iterator[Callable[[], None]]:
    """Progress where nobody looks."""
    yield lambda: None


class Course:
    """A benchmark, a model, and how far they have got."""

    def __init__(
        self,
        settings: CourseSettings,
        material: Material,
        device: str = "cpu",
        folder: CourseFolder | None = None,
        *,
        resume: bool = False,
    ) -> None:
        self.settings, self.folder = settings, folder
        self.benchmark = fitting(settings.benchmark, settings.model)
        require_every_class(self.benchmark, material)
        self.material = _chosen(settings, self.benchmark, material)
        self.model: Model = _begun(settings, self.benchmark.classes, self.material, device)
        self.weights = str(getattr(self.model, "weights", "the class does not say"))
        self.past: list[Past] = []
        """Of every scenario lived through, pre-training first."""
        self.rows: list[WindowRow] = []
        self.pretraining_stopped = ""
        if folder is not None:
            self._take_up(folder, resume)

    def run(self, windows: int | None = None, progress: Progress = unwatched) -> CourseResult:
        """Pre-train and go through the first `windows` windows, all unless told otherwise."""
        last = self.benchmark.last_window(windows)
        for scenario in range(len(self.past), last + 1):
            self._live_through(scenario, progress)
        return CourseResult(
            self.benchmark.name,
            self.settings.model,
            self.material.source,
            self.weights,
            self.settings.retraining.seed,
            self.past[0].came,
            tuple(self.rows[:last]),
            self.pretraining_stopped,
        )

    def _live_through(self, scenario: int, progress: Progress) -> None:
        """One scenario: the first is for pre-training, every other is a window."""
        settings = self.settings.retraining
        data = window_data(
            self.benchmark, self.material, scenario, self.settings.memory, settings.seed
        )
        before = accuracy(self.model, data.held_out)
        said = estimate(self.model, data, before, settings, self.past)
        epochs = self.folder.epochs(scenario) if self.folder is not None else None
        samples = len(data.new) + len(data.replay)
        what = f"window {scenario}" if scenario else "pre-training"
        with progress(_steps_left(settings, samples, epochs), what) as step:
            self.model, done = retrain(self.model, data, before, settings, epochs, step)
        if scenario:
            classes = (scenario + 1) * self.benchmark.classes_each
            self.rows.append(row_of(scenario, classes, samples, said, done))
        else:
            self.pretraining_stopped = done.stopped
        self.past.append(said.past(done.accuracy_served))
        if self.folder is not None:
            self.folder.finished(scenario, self.model, self._about())

    def _take_up(self, folder: CourseFolder, resume: bool) -> None:
        found = folder.begin(self._identity(), resume=resume)
        if found is not None:
            with calling(self.settings.model, "load()"):
                self.model.load(found.weights)
            self.past = [Past(**each) for each in found.about["past"]]
            self.rows = [row_from(each) for each in found.about["rows"]]
            self.pretraining_stopped = str(found.about["pretraining_stopped"])
            # the first step of a process loads libraries, which belongs to no window's seconds
            few = self.material.train.rows(np.arange(2))
            copy.deepcopy(self.model).train_step(few.inputs, few.labels, 0.0)

    def _identity(self) -> dict[str, Any]:
        return {
            **asdict(self.settings),
            "weights": weights_identity(self.settings.weights),
            "material": material_identity(self.material),
        }

    def _about(self) -> dict[str, Any]:
        return {
            "past": [asdict(each) for each in self.past],
            "rows": [asdict(each) for each in self.rows],
            "pretraining_stopped": self.pretraining_stopped,
        }


def fitting(benchmark_name: str, model_name: str) -> Benchmark:
    """The benchmark, if the model reads what it is made of."""
    found, kind = benchmark(benchmark_name), model_class(model_name)
    if kind.modality != found.modality:
        raise InputError(
            f"--model: {model_name} reads {kind.modality}, and {found.name} is made of "
            f"{found.modality}; `migrator models` lists what each reads"
        )
    return found


def _begun(settings: CourseSettings, classes: int, material: Material, device: str) -> Model:
    """The model a course begins with; a class of the user's own is tried first."""
    name = settings.model
    model = built(name, classes, settings.retraining.seed, settings.pixels)
    if settings.weights is not None:
        # of a file of ours only the weights: where its training stood is not where this one begins
        begin = getattr(model, "begin_with", model.load)
        with calling(name, "load()"):
            begin(settings.weights)
    with calling(name, "to()"):
        model.to(device)
    if ":" in name:
        require_works(name, model, material.train, classes)
    return model


def _chosen(settings: CourseSettings, known: Benchmark, material: Material) -> Material:
    """The material in the order and amount asked for."""
    seed = settings.retraining.seed
    ordered = reordered(known, material, seed) if settings.shuffle else material
    return limited(ordered, settings.per_class, seed)


def _steps_left(settings: Settings, samples: int, epochs: Checkpoints | None) -> int:
    """Of a retraining that may have been cut off."""
    found = None if epochs is None else epochs.newest_good()
    done = 0 if found is None else len(found.about["curve"])
    return settings.steps(samples) * (settings.epochs - done) // settings.epochs
