"""Accuracies of the paper's models, window by window: `python -m benchmarks.gpu.accuracies`.

Runs every pair of model and benchmark of the paper's evaluation (five vision models on NC-CIFAR-10
and NC-CORe50, BERT-base on NC-20-Newsgroups) through `migrator.learn.benchmark_run`: pre-training,
then per window the estimate, the retraining and the adoption. Several courses share the GPU, each
in a process of its own. Needs torch, transformers, safetensors, numpy and Pillow (torchvision for
Inception-v3), and the sources beside this folder; `PYTHONPATH=src` where MIGRator is not
installed.

Every finished window is written to `--out` at once. Where that file exists, whole courses in it
are kept and what is missing is run; `--budget-s` ends a run in time: no window is begun after it,
and a course that was cut off is run again next time. Seconds are of a shared GPU and serve only
to compare estimating with retraining.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from statistics import median
from typing import Any

import numpy as np
import torch

from migrator.learn.benchmark_run import BenchmarkRun, BenchmarkSettings
from migrator.learn.benchmarks.benchmark import Origin, window_data
from migrator.learn.model import Model
from migrator.learn.registry import benchmark, model_class
from migrator.learn.retraining import RetrainingSettings, accuracy, retrain

VISION = ("vit-b-16", "convnext-b", "inception-v3", "resnet-50", "mobilenet-v2")
PAIRS = (
    *((model, "nc-core50") for model in VISION),
    ("bert-base", "nc-20-newsgroups"),
    *((model, "nc-cifar-10") for model in VISION),
)
"""What takes longest first, so that nobody waits for a straggler."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One course, and how it is run."""

    model: str
    benchmark: str
    seed: int
    epochs: int
    batch: int
    memory: int
    per_class: int | None
    pixels: int | None
    windows: int | None
    shuffle: bool
    weights: Path | None
    data: Path | None
    device: str
    bounds: bool
    deadline: float
    """By the clock that all processes share."""

    @property
    def key(self) -> str:
        """The same for the same course in another run."""
        return f"{self.model} {self.benchmark} {self.seed}"


def lived_through(job: Job) -> Iterator[Json]:
    """The course after pre-training and after every window, until the deadline."""
    data = benchmark(job.benchmark)
    settings = BenchmarkSettings(
        job.benchmark,
        job.model,
        RetrainingSettings(job.epochs, job.batch, job.seed),
        memory=job.memory,
        per_class=job.per_class,
        pixels=_side(job),
        shuffle=job.shuffle and not data.drifts,
        weights=job.weights,
    )
    course = BenchmarkRun(settings, data.load(Origin(job.data, job.seed)), job.device)
    last = data.windows if job.windows is None else min(job.windows, data.windows)
    bounds: list[Json] = []
    initial, first = copy.deepcopy(course.model), course.model
    for windows in range(last + 1):
        if time.time() >= job.deadline:
            return
        result = course.run(windows)
        if windows == 0:
            first = course.model
        elif job.bounds:
            bounds.append(bounds_of(course, windows, initial, first))
        yield {
            "key": job.key,
            "complete": windows == last,
            **asdict(result),
            "bounds": bounds,
            "epochs": job.epochs,
            "batch": job.batch,
            "memory": job.memory,
            "pixels": settings.pixels,
            "shuffle": settings.shuffle,
            "median_error": result.median_error,
            "estimation_part": result.estimation_part,
        }


def bounds_of(course: BenchmarkRun, window: int, initial: Model, first: Model) -> Json:
    """Accuracies on a window's held-out samples without any retraining and with all samples.

    `initial`: the model before pre-training, which learns all samples so far at once; `first`: the
    model after pre-training, never retrained.
    """
    settings = course.settings.retraining
    data = window_data(
        course.benchmark, course.material, window, course.settings.memory, settings.seed
    )
    train = course.material.train
    every = replace(
        data, new=train.rows(train.arrives <= window), replay=train.rows(np.empty(0, np.intp))
    )
    _, done = retrain(initial, every, 0.0, settings)
    return {
        "window": window,
        "never_retrained": accuracy(first, data.held_out),
        "all_samples": done.accuracy_after,
        "samples": len(every.new),
        "seconds": done.seconds,
    }


def _side(job: Job) -> int | None:
    """The side asked for, as far as the model can read such images; None for texts."""
    least = getattr(model_class(job.model), "least_pixels", None)
    return None if least is None or job.pixels is None else max(job.pixels, least)


def work(jobs: Any, answers: Any, threads: int) -> None:
    """One process: a course after the other; what goes wrong is told and does not end the rest."""
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = True
    while True:
        try:
            job: Job = jobs.get_nowait()
        except Empty:
            break
        try:
            for answer in lived_through(job):
                answers.put(answer)
        except Exception as error:  # the other courses go on
            answers.put({"key": job.key, "error": f"{type(error).__name__}: {error}"})
    answers.put(None)


def measured(jobs: Sequence[Job], processes: int) -> Iterator[Json]:
    """Answers of all courses as they come."""
    context = get_context("spawn")
    waiting, answers = context.Queue(), context.Queue()
    for job in jobs:
        waiting.put(job)
    threads = max(1, (os.cpu_count() or 1) // processes)
    workers = [
        context.Process(target=work, args=(waiting, answers, threads), daemon=True)
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    running = processes
    while running:
        try:
            answer = answers.get(timeout=1.0)
        except Empty:
            if not any(worker.is_alive() for worker in workers):
                return
            continue
        if answer is None:
            running -= 1
        else:
            yield answer


def provenance(arguments: argparse.Namespace) -> Json:
    """Where, with what and when."""
    gpu = torch.cuda.is_available() and arguments.device != "cpu"
    return {
        "board": torch.cuda.get_device_name() if gpu else "CPU",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "transformers": _version("transformers"),
        "torchvision": _version("torchvision"),
        "measured": datetime.now(UTC).date().isoformat(),
        "processes": arguments.processes,
        "precision": "bf16 autocast" if gpu else "float32",
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def written(out: Path, about: Json, courses: dict[str, Json]) -> None:
    """Everything so far, whole or not at all."""
    unfinished = out.with_name(f".{out.name}.unfinished")
    content = {"provenance": about, "courses": list(courses.values())}
    unfinished.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    unfinished.replace(out)


def earlier(out: Path) -> dict[str, Json]:
    """Courses of an earlier run that need not be run again."""
    if not out.exists():
        return {}
    courses = json.loads(out.read_text(encoding="utf-8"))["courses"]
    return {course["key"]: course for course in courses if course.get("complete")}


def parsed(command: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON to write or go on with")
    parser.add_argument("--data", type=Path, help="folder of the data; default MIGRATOR_DATA")
    parser.add_argument("--budget-s", type=float, default=1e9, help="begin no window after this")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--memory", type=int, default=200, help="replayed samples per class")
    parser.add_argument("--samples", type=int, help="training samples per class; default all")
    parser.add_argument("--pixels", type=int, default=64, help="side of images; 0: the model's own")
    parser.add_argument("--windows", type=int, help="the first so many; default all")
    parser.add_argument("--shuffle", action="store_true", help="classes in an order of the seed")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--only", nargs="+", metavar="MODEL:BENCHMARK", help="just these pairs")
    parser.add_argument("--bounds", action="store_true", help="also without and with all samples")
    parser.add_argument("--weights", nargs="+", default=[], metavar="MODEL=PATH")
    return parser.parse_args(command)


def jobs_of(arguments: argparse.Namespace) -> list[Job]:
    """What is asked for, longest first."""
    pairs = [tuple(name.split(":")) for name in arguments.only] if arguments.only else PAIRS
    weights = dict(weight.split("=", 1) for weight in arguments.weights)
    there = torch.cuda.is_available() and arguments.device != "cpu"
    return [
        Job(
            model,
            name,
            seed,
            arguments.epochs,
            arguments.batch,
            arguments.memory,
            arguments.samples,
            arguments.pixels or None,
            arguments.windows,
            arguments.shuffle,
            Path(weights[model]) if model in weights else None,
            arguments.data,
            "cuda" if there else "cpu",
            arguments.bounds,
            time.time() + arguments.budget_s,
        )
        for seed in arguments.seeds
        for model, name in pairs
    ]


def main() -> None:
    """Run what is missing and say how it went."""
    arguments = parsed()
    courses = earlier(arguments.out)
    jobs = [job for job in jobs_of(arguments) if job.key not in courses]
    about = provenance(arguments)
    for answer in measured(jobs, arguments.processes):
        courses[answer["key"]] = answer
        written(arguments.out, about, courses)
        if "error" in answer:
            print(f"{answer['key']:<40} {answer['error']}", flush=True)
        else:
            rows = answer["rows"]
            said = f"{rows[-1]['accuracy_post']:.3f}" if rows else "pre-trained"
            print(f"{answer['key']:<40} window {len(rows)} {said}", flush=True)
    written(arguments.out, about, courses)
    print(summary(list(courses.values())))


def summary(courses: Sequence[Json]) -> str:
    """How far estimates were off, over all windows and per pair, and what they cost."""
    by_pair: dict[str, list[Json]] = {"all": []}
    for course in courses:
        by_pair["all"] += course.get("rows", [])
        by_pair.setdefault(f"{course['key'].rpartition(' ')[0]}", []).extend(course.get("rows", []))
    lines = []
    for pair, rows in by_pair.items():
        if rows:
            missed = sorted(abs(row["accuracy_estimated"] - row["accuracy_post"]) for row in rows)
            spent = sum(row["estimation_s"] for row in rows) / sum(
                row["retraining_s"] for row in rows
            )
            lines.append(
                f"{pair:<40} {len(rows):4d} windows, missed by {100 * median(missed):4.1f} points "
                f"(median), {100 * missed[-1]:4.1f} (most), at {spent:.1%} of the time"
            )
    return "\n".join([*lines, *recovered(courses)])


def recovered(courses: Sequence[Json]) -> Iterator[str]:
    """The part of the distance between both bounds that retraining recovers."""
    for course in courses:
        pairs = list(zip(course.get("rows", []), course.get("bounds", []), strict=False))
        if pairs:
            parts = [
                (row["accuracy_post"] - bound["never_retrained"])
                / max(1e-9, bound["all_samples"] - bound["never_retrained"])
                for row, bound in pairs
            ]
            row, bound = pairs[-1]
            yield (
                f"{course['key']:<40} recovers {min(parts):.1%} to {max(parts):.1%}, mean "
                f"{sum(parts) / len(parts):.1%}; last window: {bound['never_retrained']:.3f} "
                f"never retrained, {row['accuracy_post']:.3f} retrained, "
                f"{bound['all_samples']:.3f} with all samples"
            )


if __name__ == "__main__":
    main()
