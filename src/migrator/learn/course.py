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
from migrator.learn.adoption import decide
from migrator.learn.benchmarks.benchmark import (
    Benchmark,
    Material,
    limited,
    reordered,
    window_data,
)
from migrator.learn.course_folder import CourseFolder
from migrator.learn.course_result import CourseResult, WindowRow, row_from, row_of
from migrator.learn.estimation import Past, estimate
from migrator.learn.model import Model
from migrator.learn.registry import benchmark, build, model_class
from migrator.learn.retraining import Settings, retrain
from migrator.learn.training import accuracy

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
        self.material = _chosen(settings, self.benchmark, material)
        self.model: Model = build(
            settings.model, self.benchmark.classes, settings.retraining.seed, settings.pixels
        )
        if settings.weights is not None:
            self.model.load(settings.weights)
        self.weights = str(getattr(self.model, "weights", "the class does not say"))
        self.past: list[Past] = []
        """Of every scenario lived through, pre-training first."""
        self.rows: list[WindowRow] = []
        self.model.to(device)
        if folder is not None:
            self._take_up(folder, resume)

    def run(self, windows: int | None = None, progress: Progress = unwatched) -> CourseResult:
        """Pre-train and go through the first `windows` windows, all unless told otherwise."""
        last = self.benchmark.windows if windows is None else windows
        if not 0 <= last <= self.benchmark.windows:
            raise InputError(
                f"--windows: {self.benchmark.name} has {self.benchmark.windows} windows; give 0 "
                f"to {self.benchmark.windows}"
            )
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
        with progress(settings.steps(samples), what) as step:
            self.model, done = retrain(self.model, data, before, settings, epochs, step)
        if scenario:
            classes = (scenario + 1) * self.benchmark.classes_each
            self.rows.append(row_of(scenario, classes, samples, said, done))
        served = decide(done.accuracy_before, done.accuracy_after)
        self.past.append(said.past(served.accuracy))
        if self.folder is not None:
            self.folder.finished(scenario, self.model, self._about())

    def _take_up(self, folder: CourseFolder, resume: bool) -> None:
        found = folder.begin(self._identity(), resume=resume)
        if found is not None:
            self.model.load(found.weights)
            self.past = [Past(**each) for each in found.about["past"]]
            self.rows = [row_from(each) for each in found.about["rows"]]
            # the first step of a process loads libraries, which belongs to no window's seconds
            labels = np.zeros(2, np.int64)
            copy.deepcopy(self.model).train_step(self.model.example(2), labels, 0.0)

    def _identity(self) -> dict[str, Any]:
        weights = None if self.settings.weights is None else str(self.settings.weights)
        return {**asdict(self.settings), "weights": weights, "source": self.material.source}

    def _about(self) -> dict[str, Any]:
        return {"past": [asdict(e) for e in self.past], "rows": [asdict(e) for e in self.rows]}


def fitting(benchmark_name: str, model_name: str) -> Benchmark:
    """The benchmark, if the model reads what it is made of."""
    found, kind = benchmark(benchmark_name), model_class(model_name)
    if kind.modality != found.modality:
        raise InputError(
            f"--model: {model_name} reads {kind.modality}, and {found.name} is made of "
            f"{found.modality}; `migrator models` lists what each reads"
        )
    return found


def _chosen(settings: CourseSettings, known: Benchmark, material: Material) -> Material:
    """The material in the order and amount asked for."""
    seed = settings.retraining.seed
    ordered = reordered(known, material, seed) if settings.shuffle else material
    return limited(ordered, settings.per_class, seed)
