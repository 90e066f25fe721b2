"""Estimates of a retraining against the retraining, also of models left out for some windows.

    MIGRATOR_DATA=FOLDER python -m benchmarks.left_out --out FOLDER
        [--benchmark nc-cifar-10] [--model efficientnet-lite0] [--epochs 5] [--per-class 400]
        [--replay 100] [--windows 4] [--seed 0] [--device cuda]

A model is pre-trained and retrained in every window. From each of these versions, every later
window is estimated and retrained as well, as if the windows between had passed without a
retraining. FOLDER/left_out.json keeps what several commands measured. The page estimates anew from
the rows, with the present code.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine
from migrator.learn.benchmark_run import matching_benchmark
from migrator.learn.benchmarks.benchmark import Benchmark, Material, Origin, limit_samples
from migrator.learn.benchmarks.benchmark import window_data as scenario_data
from migrator.learn.estimation import Past, TrialTraining, estimates_from, run_trial
from migrator.learn.model import Model
from migrator.learn.registry import build_model
from migrator.learn.retraining import RetrainingSettings, accuracy, retrain
from migrator.learn.samples import WindowData

Json = dict[str, Any]
FILE = "left_out.json"


def data_since(
    benchmark: Benchmark, material: Material, since: int, window: int, replay: int, seed: int
) -> WindowData:
    """What a retraining in `window` learns if `since` is the first window it has not learned."""
    data = scenario_data(benchmark, material, window, replay, seed)
    arrives = material.train.arrives
    return replace(
        data,
        new=material.train.rows((arrives >= since) & (arrives <= window)),
        replay=scenario_data(benchmark, material, since, replay, seed).replay,
        new_classes=frozenset(range(since * benchmark.classes_each, benchmark.classes_by(window))),
    )


def measured(asked: argparse.Namespace) -> Iterator[Json]:
    """A row per version and later window; window 0 is the pre-training."""
    benchmark = matching_benchmark(asked.benchmark, asked.model)
    whole = benchmark.load(Origin(seed=asked.seed))
    fewer = limit_samples(whole, asked.per_class, asked.seed)
    settings = RetrainingSettings(epochs=asked.epochs, seed=asked.seed)
    model: Model = build_model(asked.model, benchmark.classes, asked.seed, None, pretrained=True)
    model.to(asked.device)
    for since in range(asked.windows + 1):
        following = model
        for window in range(since, asked.windows + 1) if since else (0,):
            material = fewer if window else whole
            data = data_since(benchmark, material, since, window, asked.replay, asked.seed)
            before = accuracy(model, data.held_out, settings.batch)
            trial = run_trial(model, data, [settings])
            trained, done = retrain(model, data, before, settings)
            if window == since:
                following = trained
            yield {
                "since": since,
                "window": window,
                "samples": trial.samples,
                "new_before": trial.new_before,
                "before": before,
                "new_part": len(data.held_out_new) / len(data.held_out),
                "trial": trial.curve,
                "after": done.accuracy_served,
                "curve": done.curve,
            }
        model = following


def errors(course: Json) -> Iterator[tuple[int, int, float]]:
    """For every row but the pre-training: retrainings before it, windows left out, the error of
    its estimate."""
    settings = RetrainingSettings(epochs=course["epochs"], seed=course["seed"])
    past: list[Past] = []
    follows: Past | None = None
    for row in course["rows"]:
        if follows is not None and row["since"] > len(past):
            past.append(follows)
        known = row.get("new_before", 0.0)  # rows of older code do not have it
        trial = TrialTraining(tuple(row["trial"]), samples=row["samples"], new_before=known)
        expected = estimates_from(trial, row["before"], row["new_part"], [settings], past)[0]
        if row["window"] == row["since"]:
            follows = expected.past(row["after"], row["curve"])
        if row["window"]:
            left_out = row["window"] - row["since"]
            yield row["since"] - 1, left_out, expected.accuracy - row["after"]


def page(record: Json) -> str:
    """The page of the docs."""
    by_course = [list(errors(course)) for course in record["courses"]]
    most = max(left_out for course in by_course for _, left_out, _ in course)
    lines = [
        "# Estimates for models that were left out",
        "",
        "Estimated minus actual accuracy after a retraining, in points, of models that missed as "
        "many windows as the head of the column says. Every window brings new classes. "
        "EfficientNet-Lite with published weights on an H200, the others with random weights "
        "on a CPU.",
        "",
    ]
    heads = ["model", "seed", "epochs", "samples per class", "retrained before"]
    heads += map(str, range(most + 1))
    lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for course, found in zip(record["courses"], by_course, strict=True):
        for retrained in (False, True):
            missed = defaultdict(list)
            for earlier, left_out, error in found:
                if bool(earlier) == retrained:
                    missed[left_out].append(error)
            cells = [_points(missed[left_out]) for left_out in range(most + 1)]
            name = f"{course['model']}, {course['benchmark']}"
            how = "yes" if retrained else "no, only pre-trained"
            settings = [str(course[key]) for key in ("seed", "epochs", "per_class")]
            lines.append(f"| {' | '.join([name, *settings, how, *cells])} |")
    every = [error for course in by_course for *_, error in course]
    lines += [
        "",
        f"All {len(every)}: {100 * float(np.mean(np.abs(every))):.1f} points in the mean of the "
        f"absolute errors, {100 * float(np.mean(every)):+.1f} in the mean. A cell is the mean "
        "of its windows.",
        "",
        "`MIGRATOR_DATA=FOLDER python -m benchmarks.left_out --out FOLDER --model MODEL "
        "--benchmark BENCHMARK --seed N --epochs N --per-class N --replay N` adds two rows; "
        "`--replay` was 100 with 400 samples per class, else 50; on the H200 `--device cuda`.",
        "",
    ]
    return "\n".join(lines)


def _points(errors: Sequence[float]) -> str:
    return f"{100 * float(np.mean(errors)):+.1f}" if errors else ""


def read(file: Path) -> Json:
    """The kept courses."""
    record: Json = json.loads(file.read_text("utf-8")) if file.exists() else {"courses": []}
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--benchmark", default="nc-cifar-10")
    parser.add_argument("--model", default="efficientnet-lite0")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--per-class", type=int, default=400)
    parser.add_argument("--replay", type=int, default=100)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    settings = {
        name: getattr(asked, name)
        for name in (
            *("model", "benchmark", "seed", "epochs", "per_class", "replay"),
            *("windows", "device"),
        )
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    record = read(asked.out / FILE)
    course = {**settings, "machine": describe_machine(), "rows": list(measured(asked))}
    record["courses"].append(course)
    (asked.out / FILE).write_text(json.dumps(record), "utf-8")
    print(page({"courses": [course]}))


if __name__ == "__main__":
    main()
