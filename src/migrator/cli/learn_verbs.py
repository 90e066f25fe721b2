"""Verbs about learning: retrain, models, benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import app
from migrator.cli.plan_verbs import AsJson
from migrator.cli.printing import print_json, progress
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.learn.answer_file import AnswerFile
    from migrator.learn.course_result import CourseResult, WindowRow
    from migrator.learn.course_run import CourseRun


@app.command()
def retrain(
    benchmark: Annotated[str, typer.Argument(help="`migrator benchmarks` lists them.")],
    model: Annotated[
        str,
        typer.Option(metavar="NAME", help="One of `migrator models`, or package.module:Class."),
    ],
    windows: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The first N windows; default all.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, max=1000, help="Of every retraining.")] = 8,
    batch: Annotated[int, typer.Option(min=2, max=65536, help="Samples of a step.")] = 64,
    samples: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Train on at most N of a class per scenario; default all."
        ),
    ] = None,
    replay: Annotated[
        int, typer.Option(min=0, metavar="N", help="Samples kept of every earlier class.")
    ] = 200,
    pixels: Annotated[
        int | None,
        typer.Option(min=8, max=1024, metavar="N", help="Side of the images; default the model's."),
    ] = None,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Let the seed decide which classes come first.")
    ] = False,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="The same gives the same.")] = 0,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the data is; default what MIGRATOR_DATA says."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Begin with these safetensors, not at random."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep what a run that is cut off can go on from."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from --checkpoint, with the same options.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write the figures there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Live through a benchmark: every window brings classes to estimate, retrain and adopt for.

    Try:  migrator retrain nc-synthetic --model small-cnn --windows 1
    """
    from migrator.learn.answer_file import AnswerFile
    from migrator.learn.course import CourseSettings
    from migrator.learn.registry import benchmark as known
    from migrator.learn.registry import require_torch
    from migrator.learn.retraining import Settings

    figures = None if out is None else AnswerFile(out)
    known(benchmark)  # a misspelt name is told before torch is loaded
    require_torch()
    from migrator.learn.course_run import CourseRun

    retraining = Settings(epochs, batch, seed)
    settings = CourseSettings(
        benchmark, model, retraining, replay, samples, pixels, shuffle, weights
    )
    run = CourseRun(settings, windows, device, data, checkpoint, resume)
    _tell(run, run.result(_warn, progress), figures, as_json)


def _tell(run: CourseRun, result: CourseResult, figures: AnswerFile | None, as_json: bool) -> None:
    """Print the figures and write them; where they cannot be written, they are printed whole."""
    answer = run.answer(result)
    for sentence in result.stops:
        _warn(sentence)
    try:
        if figures is not None:
            figures.write(answer)
    except InputError:
        print_json(answer)
        raise
    if as_json:
        print_json(answer)
        return
    _print_course(result, answer["board"])
    if figures is not None:
        print(f"figures   {figures.path}")


@app.command()
def models(as_json: AsJson = False) -> None:
    """List the models that `retrain` knows; a class of your own works by its import path."""
    from migrator.learn.registry import models as known

    found = known()
    if as_json:
        print_json([_model_json(name, each) for name, each in found.items()])
        return
    for name, each in found.items():
        print(f"{name:<14} {each.modality:<7} {getattr(each, 'summary', '')}")


@app.command()
def benchmarks(as_json: AsJson = False) -> None:
    """List the class-incremental benchmarks: every window brings new classes."""
    from migrator.learn.registry import benchmarks as known

    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "windows": each.windows,
                    "classes_per_window": each.classes_each,
                    "classes": each.classes,
                    "modality": str(each.modality),
                    "summary": each.summary,
                }
                for each in known().values()
            ]
        )
        return
    for each in known().values():
        print(f"{each.name:<18} {each.windows} windows  {each.modality:<7} {each.summary}")


def _model_json(name: str, kind: object) -> dict[str, object]:
    return {
        "name": name,
        "modality": str(getattr(kind, "modality", "")),
        "summary": getattr(kind, "summary", ""),
        "learning_rate": getattr(kind, "learning_rate", None),
    }


def _warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)


def _print_course(result: CourseResult, board: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    print(f"benchmark {result.benchmark}: {result.source}")
    print(f"model     {result.model}, weights {result.weights}, on {board}")
    print(f"before    {result.accuracy_pretrained:.1%} after pre-training")
    if not result.rows:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("window", "classes", "before", "estimated", "after", "new classes", "", "seconds"):
        table.add_column(name, justify="right")
    for row in result.rows:
        table.add_row(
            str(row.window),
            str(row.classes),
            f"{row.accuracy_pre:.1%}",
            f"{row.accuracy_estimated:.1%}",
            f"{row.accuracy_post:.1%}",
            f"{row.accuracy_new_pre:.0%} to {row.accuracy_new_post:.0%}",
            _became(row),
            f"{row.retraining_s:.1f}",
        )
    Console(width=100).print(table)
    print(f"estimates missed by {100 * (result.median_error or 0):.1f} points (median) ", end="")
    print(f"and took {result.estimation_part or 0:.1%} of the retrainings' time")


def _became(row: WindowRow) -> str:
    if row.stopped:
        return "stopped, kept the old"
    return "adopted" if row.adopted else "kept the old"
