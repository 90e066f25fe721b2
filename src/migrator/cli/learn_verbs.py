"""Verbs for training: retrain, models, benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import AsJson, app, print_json, progress

if TYPE_CHECKING:
    from migrator.learn.benchmark_run import BenchmarkResult


@app.command()
def retrain(
    benchmark: Annotated[
        str,
        typer.Argument(
            help="Benchmark of `migrator benchmarks`, or folder:PATH[@N]: your own samples."
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Model of `migrator models`, hf:FOLDER_OR_ID, timm:NAME, or package.module:Class.",
        ),
    ],
    windows: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Run the first N windows; default: all.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, max=1000, help="Epochs per retraining.")] = 8,
    batch: Annotated[int, typer.Option(min=2, max=65536, help="Samples per step.")] = 64,
    samples: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Training samples per class and scenario; default: all."
        ),
    ] = None,
    replay: Annotated[
        int, typer.Option(min=0, metavar="N", help="Samples replayed of every earlier class.")
    ] = 200,
    pixels: Annotated[
        int | None,
        typer.Option(
            min=8, max=1024, metavar="N", help="Side of the images; default: the model's."
        ),
    ] = None,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Order the classes by the seed.")
    ] = False,
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda", help="Device to train on.")
    ] = "auto",
    seed: Annotated[
        int, typer.Option(min=0, max=2**31, help="Seed of weights, order and replay.")
    ] = 0,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder with the data; default: MIGRATOR_DATA."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Initial weights (safetensors); default: random."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for checkpoints to resume from."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume from --checkpoint, with the same options.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a benchmark: every window brings new classes; estimate, retrain, adopt if not worse.

    Try:  migrator retrain nc-synthetic --model small-cnn --windows 1
    """
    from migrator.learn.registry import benchmark as benchmark_named
    from migrator.learn.registry import require_torch
    from migrator.learn.retraining import RetrainingSettings

    benchmark_named(benchmark)  # report a misspelt name before torch is loaded
    require_torch()
    from migrator.learn.benchmark_run import BenchmarkRequest, BenchmarkSettings

    retraining = RetrainingSettings(epochs, batch, seed)
    settings = BenchmarkSettings(
        benchmark, model, retraining, replay, samples, pixels, shuffle, weights
    )
    run = BenchmarkRequest(settings, windows, device, data, checkpoint, resume)
    result = run.result(_warn, progress)
    answer = run.answer(result)
    for sentence in result.stops:
        _warn(sentence)
    if as_json:
        print_json(answer)
    else:
        _print_course(result, answer["board"])


@app.command()
def models(as_json: AsJson = False) -> None:
    """List the packaged models for `retrain`; the last line says how others are named."""
    from migrator.learn.registry import models as packaged_models

    packaged = packaged_models()
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "modality": str(getattr(model, "modality", "")),
                    "summary": getattr(model, "summary", ""),
                    "learning_rate": getattr(model, "learning_rate", None),
                }
                for name, model in packaged.items()
            ]
        )
        return
    for name, model in packaged.items():
        print(f"{name:<18} {model.modality:<7} {getattr(model, 'summary', '')}")
    print("and hf:FOLDER_OR_ID, timm:NAME, package.module:Class (docs/learning.md)")


@app.command()
def benchmarks(as_json: AsJson = False) -> None:
    """List the class-incremental benchmarks: every window brings new classes."""
    from migrator.learn.registry import benchmarks as packaged

    if as_json:
        print_json(
            [
                {
                    "name": benchmark.name,
                    "windows": benchmark.windows,
                    "classes_per_window": benchmark.classes_each,
                    "classes": benchmark.classes,
                    "modality": str(benchmark.modality),
                    "summary": benchmark.summary,
                }
                for benchmark in packaged().values()
            ]
        )
        return
    for benchmark in packaged().values():
        print(
            f"{benchmark.name:<18} {benchmark.windows} windows  "
            f"{benchmark.modality:<7} {benchmark.summary}"
        )
    print("folder:PATH[@N]    your own labelled pictures or texts, N classes at a time")


def _warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)


def _print_course(result: BenchmarkResult, board: str) -> None:
    from migrator.report.terminal import aligned

    print(f"benchmark {result.benchmark}: {result.source}")
    print(f"model     {result.model}, weights {result.weights}, on {board}")
    print(f"before    {result.accuracy_pretrained:.1%} after pre-training")
    if not result.rows:
        return
    lines = [("window", "classes", "before", "estimated", "after", "new classes", "", "seconds")]
    for row in result.rows:
        became = "adopted" if row.adopted else "kept the old"
        lines.append(
            (
                str(row.window),
                str(row.classes),
                f"{row.accuracy_pre:.1%}",
                f"{row.accuracy_estimated:.1%}",
                f"{row.accuracy_post:.1%}",
                f"{row.accuracy_new_pre:.0%} to {row.accuracy_new_post:.0%}",
                "stopped, kept the old" if row.stopped else became,
                f"{row.retraining_s:.1f}",
            )
        )
    print(aligned(lines, text_columns=0))
    print(f"estimates missed by {100 * (result.median_error or 0):.1f} points (median) ", end="")
    print(f"and took {result.estimation_part or 0:.1%} of the retrainings' time")
