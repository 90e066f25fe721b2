"""`migrator gpu measure`: measure a GPU on every instance size and leave it as it was."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from migrator.cli.app import REFUSED, AsJson, print_json, progress
from migrator.cli.gpu_verbs import Index, group

_BUDGET_S = 1500.0


@group.command()
def measure(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Names of the zoo or package.module:Class; default: resnet-50, convnext-b, "
            "bert-base.",
        ),
    ] = None,
    driver: Annotated[
        str,
        typer.Option(metavar="mig|mps|cpu", help="How the GPU is partitioned; cpu: a trial."),
    ] = "mig",
    index: Index = 0,
    board: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The expected board; required with --driver cpu."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the results.")] = Path(
        "gpu-measured"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="One model, and half the time per measurement.")
    ] = False,
    budget_s: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="Start no measurement that would end later."),
    ] = _BUDGET_S,
    beside_others: Annotated[
        bool,
        typer.Option(
            "--beside-others",
            help="Measure although other programs use the GPU, on what fits beside them.",
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Discard measurements of an interrupted run.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the measurements and their estimated time.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a GPU on every instance size: latencies, training steps, memory, bandwidth, what busy
    neighbours do, how long instances take to create and destroy, and what that does to neighbours.

    Takes at most half an hour. Writes profiles and a page that compares all figures with what
    simulations assume. The GPU is afterwards as it was before, also after an error, Ctrl-C or a
    signal; the same command then goes on.

    Example:  sudo migrator gpu measure --driver mig
    """
    from migrator.core import catalogue
    from migrator.profiling import whole_gpu
    from migrator.profiling.drivers import driver as driver_named

    opened = driver_named(driver, index, None if board is None else catalogue.board(board))
    todo = whole_gpu.planned(opened.board, driver, models or (), quick=quick)
    if dry_run:
        from migrator.cli.profile_verb import list_measurements

        list_measurements(todo, as_json)
        return
    command = ["migrator", "gpu", "measure", *(models or ()), "--driver", driver]
    command += ["--gpu", str(index)] if index else []
    command += [] if board is None else ["--board", board]
    command += ["--quick"] if quick else []
    with progress(len(todo), "measuring") as step:
        done = whole_gpu.measure_gpu(
            todo,
            opened,
            out,
            command=shlex.join(command),
            budget_s=budget_s,
            beside_others=beside_others,
            fresh=fresh,
            report=lambda _measurement, _row: step(),
        )
    if as_json:
        print_json(asdict(done) | {"folder": str(done.folder)})
        code = REFUSED if done.changed else 0
    else:
        code = whole_gpu.print_measured(done)
    if code:
        raise typer.Exit(code)
