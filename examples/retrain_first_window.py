"""The first window of a benchmark, from Python: pre-train, estimate, retrain, adopt.

    python examples/retrain_first_window.py [nc-cifar-10] [--data FOLDER]

NC-CIFAR-10 on a CPU takes about a minute; without its data the made-up nc-synthetic is run. What
`migrator retrain nc-cifar-10 --model small-cnn --windows 1` prints are the same figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from migrator.core.errors import InputError
from migrator.learn.benchmark_run import BenchmarkRun, BenchmarkSettings
from migrator.learn.benchmarks.benchmark import Material, Origin
from migrator.learn.registry import benchmark
from migrator.learn.retraining import RetrainingSettings


def loaded(name: str, data: Path | None) -> tuple[str, Material]:
    """The benchmark's samples, or those of nc-synthetic where there is no data."""
    try:
        return name, benchmark(name).load(Origin(data))
    except InputError as error:
        print(f"{error}\n")
        return "nc-synthetic", benchmark("nc-synthetic").load(Origin())


def main(words: Sequence[str] | None = None) -> None:
    """Run it and print what became of the new classes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark", nargs="?", default="nc-cifar-10")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--samples", type=int, help="of every class; default all")
    parser.add_argument("--pixels", type=int, help="side of the images; default the model's")
    parser.add_argument("--epochs", type=int, default=8)
    asked = parser.parse_args(words)
    name, material = loaded(asked.benchmark, asked.data)
    settings = BenchmarkSettings(
        name,
        "small-cnn",
        RetrainingSettings(epochs=asked.epochs),
        per_class=asked.samples,
        pixels=asked.pixels,
    )
    row = BenchmarkRun(settings, material).run(windows=1).rows[0]
    print(f"{name}: {material.source}")
    print(f"new classes   {row.accuracy_new_pre:.0%} -> {row.accuracy_new_post:.0%}")
    print(f"all classes   {row.accuracy_pre:.0%} -> {row.accuracy_post:.0%}")
    print(f"estimated     {row.accuracy_estimated:.0%} in {row.estimation_s:.1f} s")
    print(f"retraining    {row.retraining_s:.1f} s, {'adopted' if row.adopted else 'not adopted'}")


if __name__ == "__main__":
    main()
