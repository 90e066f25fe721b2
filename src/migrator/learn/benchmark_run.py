"""A whole benchmark with one model: pre-train; then per window estimate, retrain, adopt.

`BenchmarkRequest` is the entry point of `migrator retrain`: it checks the request, loads the data,
runs the benchmark and returns the results with their provenance.
"""

from __future__ import annotations

import copy
import hashlib
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from migrator.core.errors import InputError
from migrator.core.registry import is_import_path
from migrator.io.weights_folder import sha256_of
from migrator.learn.benchmarks.benchmark import (
    Benchmark,
    Material,
    Origin,
    limit_samples,
    reorder_classes,
    require_every_class,
    window_data,
)
from migrator.learn.checkpoint import Checkpoints, RunFolder, Warn
from migrator.learn.estimation import Past, estimate
from migrator.learn.model import Modality, Model, declares_tensors
from migrator.learn.registry import (
    benchmark,
    build_model,
    encoder,
    model_class,
    naming_method,
    require_works,
)
from migrator.learn.retraining import RetrainingSettings, accuracy, retrain

MEMORY = 200
"""Default number of samples replayed of every earlier class."""
DEVICES = ("auto", "cpu", "cuda")

Progress = Callable[[int, str], AbstractContextManager[Callable[[], None]]]
"""Takes a number of steps and their description; yields a function to call after each step."""


@dataclass(frozen=True)
class BenchmarkSettings:
    """Settings of a run. On a CPU the same settings give the same accuracies."""

    benchmark: str
    model: str
    retraining: RetrainingSettings
    memory: int = MEMORY
    per_class: int | None = None
    """Training samples of a class in a scenario; None: all."""
    pixels: int | None = None
    """Side of the network's input images; None: the model's default."""
    shuffle: bool = False
    """Whether the seed determines the order of the classes."""
    weights: Path | None = None
    """A file or folder of initial weights; None: random."""


@contextmanager
def no_progress(_steps: int, _what: str) -> Iterator[Callable[[], None]]:
    """Progress that is not shown."""
    yield lambda: None


class BenchmarkRun:
    """A benchmark, a model, and the scenarios finished so far."""

    def __init__(
        self,
        settings: BenchmarkSettings,
        material: Material,
        device: str = "cpu",
        folder: RunFolder | None = None,
        *,
        resume: bool = False,
    ) -> None:
        self.settings, self.folder = settings, folder
        self.benchmark = matching_benchmark(settings.benchmark, settings.model)
        require_every_class(self.benchmark, material)
        seed = settings.retraining.seed
        if settings.shuffle:
            material = reorder_classes(self.benchmark, material, seed)
        self.material = limit_samples(material, settings.per_class, seed)
        self.model: Model = _initial_model(settings, self.benchmark.classes, self.material, device)
        self.weights = str(getattr(self.model, "weights", "the class does not say"))
        self.past: list[Past] = []
        """One per finished scenario, pre-training first."""
        self.rows: list[WindowRow] = []
        self.pretraining_stopped = ""
        if folder is not None:
            self._begin_in(folder, resume)

    def run(self, windows: int | None = None, progress: Progress = no_progress) -> BenchmarkResult:
        """Pre-train and run the first `windows` windows; None: all."""
        last = self.benchmark.last_window(windows)
        for scenario in range(len(self.past), last + 1):
            self._run_scenario(scenario, progress)
        return BenchmarkResult(
            self.benchmark.name,
            self.settings.model,
            self.material.source,
            self.weights,
            self.settings.retraining.seed,
            self.past[0].came,
            tuple(self.rows[:last]),
            self.pretraining_stopped,
        )

    def _run_scenario(self, scenario: int, progress: Progress) -> None:
        """Scenario 0 is pre-training, every other is a window."""
        settings = self.settings.retraining
        data = window_data(
            self.benchmark, self.material, scenario, self.settings.memory, settings.seed
        )
        before = accuracy(self.model, data.held_out, self.settings.retraining.batch)
        expected = estimate(self.model, data, before, settings, self.past)
        epochs = self.folder.epochs(scenario) if self.folder is not None else None
        samples = len(data.training_part(settings.part, settings.seed))
        what = f"window {scenario}" if scenario else "pre-training"
        with progress(_steps_left(settings, samples, epochs), what) as step:
            self.model, done = retrain(self.model, data, before, settings, epochs, step)
        if scenario:
            new_after = done.accuracy_new_after if done.adopted else done.accuracy_new_before
            row = WindowRow(
                scenario,
                self.benchmark.classes_by(scenario),
                samples,
                done.accuracy_before,
                expected.accuracy,
                done.accuracy_served,
                done.accuracy_new_before,
                new_after,
                done.adopted,
                done.seconds,
                expected.seconds,
                done.curve,
                expected.curve,
                done.stopped,
            )
            self.rows.append(row)
        else:
            self.pretraining_stopped = done.stopped
        self.past.append(expected.past(done.accuracy_served, done.curve))
        if self.folder is not None:
            self.folder.finish(scenario, self.model, self._about())

    def _begin_in(self, folder: RunFolder, resume: bool) -> None:
        checkpoint = folder.begin(self._identity(), resume=resume)
        if checkpoint is not None:
            with naming_method(self.settings.model, "load()"):
                self.model.load(checkpoint.weights)
            self.past = [
                Past(**{**past, "settings": RetrainingSettings(**past["settings"])})
                for past in checkpoint.about["past"]
            ]
            self.rows = [WindowRow(**row) for row in checkpoint.about["rows"]]
            self.pretraining_stopped = str(checkpoint.about["pretraining_stopped"])
            # the first step loads libraries, which must not count as a window's retraining time
            few = self.material.train.rows(np.arange(2))
            copy.deepcopy(self.model).train_step(few.inputs, few.labels, 0.0)

    def _identity(self) -> dict[str, Any]:
        return {
            **asdict(self.settings),
            "weights": weights_identity(self.settings.weights or pretrained_folder(self.model)),
            "material": material_identity(self.material),
        }

    def _about(self) -> dict[str, Any]:
        return {
            "past": [asdict(past) for past in self.past],
            "rows": [asdict(row) for row in self.rows],
            "pretraining_stopped": self.pretraining_stopped,
        }


def matching_benchmark(benchmark_name: str, model_name: str) -> Benchmark:
    """The benchmark; InputError if the model reads another kind of input."""
    chosen, kind = benchmark(benchmark_name), model_class(model_name)
    modality = Modality.TENSORS if declares_tensors(kind) else kind.modality
    if modality != chosen.modality:
        raise InputError(
            f"--model: {model_name} reads {modality}, but {chosen.name} consists of "
            f"{chosen.modality}; `migrator models` lists what each model reads"
        )
    return chosen


def _initial_model(
    settings: BenchmarkSettings, classes: int, material: Material, device: str
) -> Model:
    """The model that a run starts with; a user's own class is checked first."""
    name = settings.model
    seed, pretrained = settings.retraining.seed, settings.weights is None
    model = build_model(name, classes, seed, settings.pixels, pretrained=pretrained)
    if settings.weights is not None:
        # begin_with ignores the training state that a saved file may hold
        load = getattr(model, "begin_with", model.load)
        with naming_method(name, "load()"):
            load(settings.weights)
    with naming_method(name, "to()"):
        model.to(device)
    if is_import_path(name):
        require_works(name, model, material.train, classes)
    return model


def _steps_left(settings: RetrainingSettings, samples: int, epochs: Checkpoints | None) -> int:
    """Remaining steps of a retraining that may have been interrupted."""
    checkpoint = None if epochs is None else epochs.newest_good()
    done = 0 if checkpoint is None else len(checkpoint.about["curve"])
    return settings.steps(samples) * (settings.epochs - done) // settings.epochs


@dataclass(frozen=True)
class BenchmarkRequest:
    """A run that a user asks for: settings, device, data and checkpoints."""

    settings: BenchmarkSettings
    windows: int | None = None
    """Number of windows; None: all."""
    device: str = "auto"
    data: Path | None = None
    checkpoint: Path | None = None
    """A folder for checkpoints to resume from."""
    resume: bool = False

    def result(self, warn: Warn, progress: Progress = no_progress) -> BenchmarkResult:
        """Run the benchmark. Invalid settings raise InputError before data is loaded."""
        if self.resume and self.checkpoint is None:
            raise InputError("--resume: name the run's folder with --checkpoint")
        chosen = matching_benchmark(self.settings.benchmark, self.settings.model)
        chosen.last_window(self.windows)
        where = resolve_device(self.device)
        encode = encoder(self.settings.model, chosen.modality)
        seed, pixels = self.settings.retraining.seed, self.settings.pixels
        material = chosen.load(Origin(self.data, seed, encode, pixels))
        folder = None if self.checkpoint is None else RunFolder(self.checkpoint, warn)
        try:
            run = BenchmarkRun(self.settings, material, where, folder, resume=self.resume)
            return run.run(self.windows, progress)
        finally:
            if folder is not None:
                folder.close()

    def answer(self, result: BenchmarkResult) -> dict[str, Any]:
        """The results as JSON, with everything needed to run the benchmark again."""
        settings, where = self.settings, resolve_device(self.device)
        return {
            "board": device_name(where),
            "device": where,
            "torch": torch.__version__,
            "date": datetime.now(UTC).date().isoformat(),
            "epochs": settings.retraining.epochs,
            "batch": settings.retraining.batch,
            "replay": settings.memory,
            "samples": settings.per_class,
            "pixels": settings.pixels,
            "shuffle": settings.shuffle,
            **asdict(result),
            "rows": [{**asdict(row), "error": row.error} for row in result.rows],
            "median_error": result.median_error,
            "estimation_part": result.estimation_part,
        }


@dataclass(frozen=True)
class WindowRow:
    """One window of a run; accuracies are on held-out data of all classes seen so far."""

    window: int
    classes: int
    samples: int
    """Training samples, including replayed ones."""
    accuracy_pre: float
    accuracy_estimated: float
    accuracy_post: float
    """Of the model in service afterwards."""
    accuracy_new_pre: float
    """On the window's new classes alone."""
    accuracy_new_post: float
    adopted: bool
    retraining_s: float
    estimation_s: float
    curve: tuple[float, ...]
    """After every epoch of the retraining."""
    estimation_curve: tuple[float, ...]
    """Before training and after every epoch of the estimation's trial."""
    stopped: str = ""
    """Why the retraining ended before its last epoch."""

    def __post_init__(self) -> None:
        # lists if they are read from JSON
        object.__setattr__(self, "curve", tuple(self.curve))
        object.__setattr__(self, "estimation_curve", tuple(self.estimation_curve))

    @property
    def error(self) -> float:
        """Estimated minus actual accuracy."""
        return self.accuracy_estimated - self.accuracy_post


@dataclass(frozen=True)
class BenchmarkResult:
    """Results of a run."""

    benchmark: str
    model: str
    source: str
    """The origin of the samples, in words."""
    weights: str
    """The origin of the initial weights, in words."""
    seed: int
    accuracy_pretrained: float
    rows: tuple[WindowRow, ...]
    pretraining_stopped: str = ""
    """Why pre-training ended before its last epoch."""

    @property
    def stops(self) -> list[str]:
        """One sentence for every training that was stopped."""
        stopped = {0: self.pretraining_stopped, **{row.window: row.stopped for row in self.rows}}
        return [
            f"{f'window {window}' if window else 'pre-training'}: {why}"
            for window, why in stopped.items()
            if why
        ]

    @property
    def median_error(self) -> float | None:
        """Median absolute error of the estimates; None without windows."""
        return median(abs(row.error) for row in self.rows) if self.rows else None

    @property
    def estimation_part(self) -> float | None:
        """Time spent estimating over time spent retraining; None without windows."""
        spent = sum(row.retraining_s for row in self.rows)
        return sum(row.estimation_s for row in self.rows) / spent if spent else None


def material_identity(material: Material) -> dict[str, Any]:
    """The origin of the samples and a digest of inputs and labels."""
    digest = hashlib.sha256()
    for samples in (material.train, material.held_out):
        for array in (samples.inputs, samples.labels, samples.arrives):
            digest.update(f"{array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
    return {"source": material.source, "sha256": digest.hexdigest()}


def pretrained_folder(model: Model) -> Path | None:
    """The folder whose weights a model of a library begins with; None for other models."""
    folder = getattr(model, "folder", None)
    return None if folder is None else folder.path


def weights_identity(path: Path | None) -> dict[str, Any] | None:
    """Name and digests of the initial weights; None if they are random."""
    if path is None:
        return None
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    return {"name": path.name, "sha256": {file.name: sha256_of(file) for file in files}}


def resolve_device(name: str) -> str:
    """ "cpu" or "cuda" for a name in `DEVICES`; auto is the GPU if there is one."""
    if name not in DEVICES:
        raise InputError(f"--device: there is no {name[:100]!r}; use {', '.join(DEVICES)}")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise InputError("--device: torch sees no CUDA GPU here; use cpu, or auto")
    return "cuda" if available and name != "cpu" else "cpu"


def device_name(device: str) -> str:
    """The GPU's name, or the processor's type."""
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    return f"CPU ({platform.machine()}, {torch.get_num_threads()} threads)"
