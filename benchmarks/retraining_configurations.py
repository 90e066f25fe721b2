"""How long and how well configurations of a retraining learn, and how well that is estimated.

`MIGRATOR_DATA=FOLDER python -m benchmarks.retraining_configurations --out FILE.json`

A model is pre-trained and goes through the windows of a benchmark. In every window the serving
model is retrained once with every configuration; the result of one of them, drawn from the seed,
serves in the next window. Before that the estimator's trials are made. Every window is written at
once; a course that was cut off is begun again next time.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine import describe_machine
from migrator.core.errors import InputError
from migrator.core.training import Layers
from migrator.learn.benchmark_run import matching_benchmark, resolve_device
from migrator.learn.benchmarks.benchmark import (
    Material,
    Origin,
    limit_samples,
    reorder_classes,
    window_data,
)
from migrator.learn.estimation import run_trial
from migrator.learn.model import Model
from migrator.learn.registry import benchmark, build_model, encoder
from migrator.learn.retraining import Laps, RetrainingSettings, accuracy, retrain, train_only
from migrator.learn.samples import WindowData

CONFIGURATIONS = {
    "head, 2 epochs": RetrainingSettings(epochs=2, layers=Layers.HEAD),
    "head, 8 epochs": RetrainingSettings(epochs=8, layers=Layers.HEAD),
    "last block, 4 epochs": RetrainingSettings(epochs=4, layers=Layers.LAST_BLOCK),
    "all, 2 epochs": RetrainingSettings(epochs=2),
    "all, 4 epochs": RetrainingSettings(epochs=4),
    "all, 8 epochs": RetrainingSettings(epochs=8),
    "all, 8 epochs, half of the samples": RetrainingSettings(epochs=8, part=0.5),
}
LONGEST = "all, 8 epochs"
"""The one with which a course is pre-trained."""
MEMORY = 200
PAIRS = ("small-cnn:nc-synthetic", "small-cnn:nc-cifar-10", "small-text:nc-20-newsgroups")

Json = dict[str, Any]


@dataclass(frozen=True)
class Course:
    """A model going through the windows of a benchmark."""

    model: str
    benchmark: str
    seed: int
    shuffle: bool
    samples: int | None
    """Training samples per class; None: all."""
    pixels: int | None
    windows: int | None
    device: str
    data: Path | None

    @property
    def key(self) -> str:
        """The same for the same course in another run."""
        return f"{self.model}:{self.benchmark}:{self.seed}"

    def windows_measured(self, deadline: float) -> Iterator[Json]:
        """A row per window, until the deadline by the monotonic clock."""
        chosen = matching_benchmark(self.benchmark, self.model)
        material = limit_samples(_material(self), self.samples, self.seed)
        if self.shuffle and not chosen.drifts:
            material = reorder_classes(chosen, material, self.seed)
        model: Model = build_model(
            self.model, chosen.classes, self.seed, self.pixels, pretrained=True
        )
        model.to(resolve_device(self.device))
        draw = np.random.default_rng(self.seed)
        for window in range(chosen.last_window(self.windows) + 1):
            if time.monotonic() > deadline:
                return
            data = window_data(chosen, material, window, MEMORY, self.seed)
            names = [*_possible(model)] if window else [LONGEST]
            serves = str(draw.choice(names))
            model, row = _measured(model, data, names, serves, self.seed)
            yield {"window": window, "classes": chosen.classes_by(window), **row}


def _possible(model: Model) -> Iterator[str]:
    """The configurations that the model knows: some have no list of blocks."""
    trial = copy.deepcopy(model)
    for name, settings in CONFIGURATIONS.items():
        with suppress(InputError):
            train_only(trial, settings.layers)
            yield name


@cache
def _material(course: Course) -> Material:
    chosen = benchmark(course.benchmark)
    encode = encoder(course.model, chosen.modality)
    return chosen.load(Origin(course.data, course.seed, encode, course.pixels))


def _measured(
    model: Model, data: WindowData, names: Sequence[str], serves: str, seed: int
) -> tuple[Model, Json]:
    """The model that serves afterwards, and the row of a window."""
    before = accuracy(model, data.held_out)
    settings = {name: replace(CONFIGURATIONS[name], seed=seed) for name in names}
    trials = {}
    for what, wanted in (("longest", [LONGEST]), ("every", names)):
        began, cpu = time.perf_counter(), time.process_time()
        tried = run_trial(model, data, [replace(CONFIGURATIONS[one], seed=seed) for one in wanted])
        trials[what] = {
            **asdict(tried),
            "seconds": time.perf_counter() - began,
            "cpu_s": time.process_time() - cpu,
        }
    results: dict[str, Json] = {}
    following = model
    for name in names:
        laps, cpu, steps = Laps(), time.process_time(), _Steps()
        retrained, done = retrain(
            model, data, before, settings[name], step_done=steps.count, laps=laps
        )
        results[name] = {
            "accuracy": done.accuracy_after,
            "adopted": done.adopted,
            "curve": done.curve,
            "steps": steps.done,
            "samples": len(data.training_part(settings[name].part, seed)),
            "seconds": sum(laps.parts_s.values()),
            "cpu_s": time.process_time() - cpu,
            "parts_s": laps.parts_s,
        }
        if name == serves:
            following = retrained
    return following, {
        "before": before,
        "new_part": len(data.held_out_new) / len(data.held_out),
        "held_out": len(data.held_out),
        "samples": len(data.training),
        "serves": serves,
        "trials": trials,
        "results": results,
    }


class _Steps:
    def __init__(self) -> None:
        self.done = 0

    def count(self) -> None:
        self.done += 1


def provenance(device: str) -> Json:
    """Where, with what and when."""
    gpu = device == "cuda"
    return {
        "board": torch.cuda.get_device_name() if gpu else "CPU, one thread",
        "machine": describe_machine(),
        "torch": torch.__version__,
        "precision": "bf16 autocast" if gpu else "float32",
        "measured": datetime.now(UTC).date().isoformat(),
    }


def write_courses(out: Path, courses: dict[str, Json]) -> None:
    """Everything so far, whole or not at all."""
    unfinished = out.with_name(f".{out.name}.unfinished")
    content = {"courses": courses}
    unfinished.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    unfinished.replace(out)


def read_courses(out: Path) -> dict[str, Json]:
    """The courses in a file; none without one."""
    if not out.exists():
        return {}
    courses: dict[str, Json] = json.loads(out.read_text(encoding="utf-8"))["courses"]
    return courses


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON to write or go on with")
    parser.add_argument("--data", type=Path, help="folder of the data; default MIGRATOR_DATA")
    parser.add_argument("--pairs", nargs="+", default=PAIRS, metavar="MODEL:BENCHMARK")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--samples", type=int, help="training samples per class; default all")
    parser.add_argument("--pixels", type=int, help="side of images; default the model's own")
    parser.add_argument("--windows", type=int, help="the first so many; default all")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--budget-s", type=float, default=1e9, help="begin no window after this")
    asked = parser.parse_args()
    deadline, device = time.monotonic() + asked.budget_s, resolve_device(asked.device)
    if device == "cpu":
        torch.set_num_threads(1)
    courses = read_courses(asked.out)
    for seed in asked.seeds:
        for pair in asked.pairs:
            model, _, name = pair.rpartition(":")
            course = Course(
                model,
                name,
                seed,
                seed > 0,
                asked.samples,
                asked.pixels,
                asked.windows,
                device,
                asked.data,
            )
            if courses.get(course.key, {}).get("complete"):
                continue
            rows: list[Json] = []
            kept = {**provenance(device), "samples_per_class": asked.samples, "rows": rows}
            for row in course.windows_measured(deadline):
                rows.append(row)
                courses[course.key] = {**kept, "complete": False}
                write_courses(asked.out, courses)
                print(course.key, row["window"], _said(row), flush=True)
            last = benchmark(name).last_window(asked.windows)
            if len(rows) == last + 1:
                courses[course.key]["complete"] = True
                write_courses(asked.out, courses)


def _said(row: Json) -> str:
    results = row["results"]
    return ", ".join(
        f"{name}: {result['accuracy']:.3f} in {result['cpu_s']:.1f} s"
        for name, result in results.items()
    )


if __name__ == "__main__":
    main()
