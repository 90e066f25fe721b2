"""The verb `advise`: is dynamic reconfiguration worth it for these tenants?"""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from migrator.cli.app import app, print_json, progress, warm
from migrator.cli.cluster_verbs import ray_address
from migrator.cli.options import AsJson, RayAddress, ScenarioFile


@app.command()
def advise(
    scenario: ScenarioFile,
    windows: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Windows to run; default: the scenario's, at most 4 of them."
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Trials in parallel; default: one per core.")
    ] = None,
    ray: RayAddress = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the advice as FILE.html or FILE.png.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether dynamic reconfiguration pays for a scenario's tenants, and what would help.

    Compares migrator with the best static split and with each peer, at 0.5, 1, 1.5 and 2 times the
    load, and tries more labels, shorter retraining, a larger board and prepared workers.
    """
    from migrator.advise.advice import consult, run_consultation
    from migrator.advise.advice_report import (
        advice_json,
        advice_page,
        advice_picture,
        advice_text,
    )
    from migrator.cluster.placement.workers import open_workers
    from migrator.report.html_page import check_figure_path, write_figure
    from migrator.simulate import tenant
    from migrator.simulate.compare import Job, cores
    from migrator.workload.file import read_scenario

    if figure is not None:
        check_figure_path(figure)
    source = partial(read_scenario, scenario)
    Job(source, windows=windows).scenario()  # checks the options and the scenario's names
    consultation = consult(source, windows)
    trials = consultation.trials()
    print(_estimate(len(trials) * consultation.windows, processes or cores()), file=sys.stderr)
    warm(["migrator"])
    tenant.ready()
    with (
        open_workers(processes, ray_address(ray)) as workers,
        progress(len(trials), "trials") as step,
    ):
        found = run_consultation(consultation, workers, step)
    if figure is not None:
        write_figure(figure, "--figure", lambda: advice_page(found), lambda: advice_picture(found))
    if as_json:
        print_json(advice_json(found))
        return
    print(advice_text(found))
    if figure is not None:
        print(f"\nfigure  {figure}")


_WINDOW_S = 6.0
"""Approximate seconds of one window of a trial: planning takes most of them."""


def _estimate(windows: int, at_once: int) -> str:
    seconds = _WINDOW_S * windows / at_once
    long = f"about {math.ceil(seconds / 30) / 2:g} minutes"
    return f"{windows} windows, {at_once} trials at a time: {long}"
