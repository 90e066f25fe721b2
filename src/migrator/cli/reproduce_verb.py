"""The verbs `reproduce` (the paper's experiments) and `advise`."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import (
    AsJson,
    Processes,
    RayAddress,
    ScenarioFile,
    app,
    print_json,
    progress,
    warm,
)
from migrator.cli.cluster_verbs import ray_address
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.reproduce.experiment import Setting
    from migrator.simulation.compare import SimulationJob

_WINDOW_S = 6.0
"""Approximate seconds of one window of a trial: planning takes most of them."""


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[all|NAME...]", help="Experiments; default: all."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE.html", help="Report to write."),
    ] = Path("out/reproduce.html"),
    seeds: Annotated[
        int, typer.Option(min=1, max=100, help="Seeds with which everything is run.")
    ] = 1,
    workloads: Annotated[
        str | None,
        typer.Option(metavar="W1,W2,...", help="Workloads to run; default: all that each uses."),
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option(min=1, help="Most windows of a run; default: 2 of a workload."),
    ] = None,
    processes: Processes = None,
    listing: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's evaluation: one report with figures, tables and the paper's results."""
    from migrator.report.html_page import check_page_path, write_page
    from migrator.reproduce.reproduce import (
        ALL,
        EXPERIMENTS,
        figures_of,
        jobs_of,
        page_of,
        run_jobs,
    )

    if listing:
        listed = [(experiment.name, experiment.title) for experiment in EXPERIMENTS.values()]
        if as_json:
            print_json([{"name": name, "title": title} for name, title in listed])
        else:
            print("\n".join(f"{name:<20} {title}" for name, title in listed))
        return
    wanted = names or [ALL]
    setting = _setting(seeds, workloads, windows)
    jobs = jobs_of(wanted, setting)
    out.parent.mkdir(parents=True, exist_ok=True)
    check_page_path(out, "--out")
    _announce(setting, jobs, processes)
    warm(["migrator"])
    with progress(len(jobs), "runs") as step:
        outcomes = run_jobs(jobs, step, processes)
    write_page(page_of(wanted, setting, outcomes), out, "--out")
    if as_json:
        print_json({**figures_of(wanted, setting, outcomes), "page": str(out)})
    else:
        print(f"page  {out}")


def _setting(seeds: int, workloads: str | None, windows: int | None) -> Setting:
    """Use real traces from the folder in MIGRATOR_DATA, otherwise generated ones."""
    from migrator.core.registry import pick
    from migrator.reproduce.experiment import Setting
    from migrator.workload.traces.generator import VARIABLE
    from migrator.workload.workloads import workload
    from migrator.workload.workloads import workloads as packaged

    names = [name.strip().upper() for name in (workloads or "").split(",")]
    chosen = dict.fromkeys(pick("workload", name, packaged()).name for name in names if name)
    folder = os.environ.get(VARIABLE)
    if folder:
        try:
            workload(list(packaged())[-1], data=Path(folder))  # the longest; fail now, not later
        except InputError as error:
            raise InputError(f"{VARIABLE}: {error}") from error
    return Setting(
        Path(folder) if folder else None,
        tuple(range(seeds)),
        tuple(chosen or packaged()),
        windows,
    )


def _announce(setting: Setting, jobs: Sequence[SimulationJob], processes: int | None) -> None:
    """Print which traces are used, the number of runs and the estimated time."""
    from migrator.io.task_pool import cores
    from migrator.reproduce.reproduce import cost_s

    traces = "generated traces" if setting.data is None else f"real traces from {setting.data}"
    at_once = processes or cores()
    minutes = sum(map(cost_s, jobs)) / at_once / 60
    long = "under a minute" if minutes < 1 else f"about {minutes:.0f} minutes"
    print(f"{traces}, {len(jobs)} runs, {at_once} at a time: {long}", file=sys.stderr)


@app.command()
def advise(
    scenario: ScenarioFile,
    windows: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Windows to run; default: the scenario's, at most 4 of them."
        ),
    ] = None,
    processes: Processes = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Say whether dynamic reconfiguration pays for a scenario's tenants, and what would help.

    Compares migrator with the best static split and with each peer, at 0.5, 1, 1.5 and 2 times the
    load, and tries shorter retraining, a second GPU, a larger board and prepared workers.
    """
    from migrator.advise.advice import consult, run_consultation
    from migrator.advise.advice_report import advice_json, advice_text
    from migrator.io.task_pool import cores, open_workers
    from migrator.simulation import tenant
    from migrator.simulation.compare import SimulationJob
    from migrator.workload.file import read_scenario

    source = partial(read_scenario, scenario)
    SimulationJob(source, windows=windows).scenario()  # checks the options and the scenario's names
    consultation = consult(source, windows)
    trials = consultation.trials()
    print(_estimate(len(trials) * consultation.windows, processes or cores()), file=sys.stderr)
    warm(["migrator"])
    tenant.ready()
    with (
        open_workers(processes, ray_address(ray)) as workers,
        progress(len(trials), "trials") as step,
    ):
        advice = run_consultation(consultation, workers, step)
    if as_json:
        print_json(advice_json(advice))
    else:
        print(advice_text(advice))


def _estimate(windows: int, at_once: int) -> str:
    seconds = _WINDOW_S * windows / at_once
    long = f"about {math.ceil(seconds / 30) / 2:g} minutes"
    return f"{windows} windows, {at_once} trials at a time: {long}"
