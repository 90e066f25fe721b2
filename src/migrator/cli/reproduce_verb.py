"""The verbs `reproduce` (the paper's experiments and the map) and `advise`."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import (
    AsJson,
    Figure,
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
    from migrator.records.outcome import RunOutcome
    from migrator.reproduce.experiment import Setting
    from migrator.reproduce.results_file import ResultsFile
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
        Path | None,
        typer.Option(metavar="FILE.html", help="Report to write; default out/reproduce.html."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, max=100, help="Seeds with which everything is run (1); of `map`: runs per cell."
        ),
    ] = None,
    workloads: Annotated[
        str | None,
        typer.Option(metavar="W1,W2,...", help="Workloads to run; default: all that each uses."),
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option(min=1, help="Most windows of a run; default: 2 of a workload."),
    ] = None,
    processes: Processes = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Of `map`: fewer cells, in two minutes.")
    ] = False,
    draw: Annotated[
        bool, typer.Option("--draw", help="Of `map`: draw the finished runs, run nothing.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Where finished runs are kept, so that the same command continues them.",
        ),
    ] = None,
    ray: RayAddress = None,
    listing: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's evaluation: one report with figures, tables and the paper's results."""
    from migrator.report.html_page import check_page_path, write_page
    from migrator.reproduce.map import NAME, TITLE
    from migrator.reproduce.reproduce import (
        ALL,
        EXPERIMENTS,
        figures_of,
        jobs_of,
        key_of,
        page_of,
        run_jobs,
    )

    if listing:
        listed = [(experiment.name, experiment.title) for experiment in EXPERIMENTS.values()] + [
            (NAME, TITLE)
        ]
        if as_json:
            print_json([{"name": name, "title": title} for name, title in listed])
        else:
            print("\n".join(f"{name:<20} {title}" for name, title in listed))
        return
    wanted = names or [ALL]
    if NAME in wanted:
        if len(wanted) > 1:
            raise InputError(f"{NAME} has a page of its own; name the other experiments without it")
        for option in ("--workloads" if workloads else "", "--windows" if windows else ""):
            if option:
                raise InputError(f"{option}: not for the experiment {NAME}; leave it out")
        _reproduce_map(
            _setting(1).data,
            quick=quick,
            draw=draw,
            runs=seeds,
            out=out,
            results=results,
            processes=processes,
            ray=ray,
            as_json=as_json,
        )
        return
    _require_map(quick, draw, ray)
    out = out or Path("out/reproduce.html")
    setting = _limited(_setting(seeds or 1), workloads, windows)
    jobs = jobs_of(wanted, setting)
    out.parent.mkdir(parents=True, exist_ok=True)
    check_page_path(out, "--out")
    with _kept(results, setting.data) as file:
        left = [job for job in jobs if file is None or key_of(job) not in file.finished]
        _announce(setting, left, len(jobs) - len(left), processes)
        warm(["migrator"] if left else [])
        with progress(len(left), "runs") as step:
            outcomes = run_jobs(jobs, step, processes, file)
    write_page(page_of(wanted, setting, outcomes), out, "--out")
    if as_json:
        print_json({**figures_of(wanted, setting, outcomes), "page": str(out)})
    else:
        print(f"page  {out}")


@contextmanager
def _kept(path: Path | None, data: Path | None) -> Iterator[ResultsFile[RunOutcome] | None]:
    """The results file, if one is named; `data`: the folder of real traces."""
    from migrator.records.outcome import RunOutcome
    from migrator.reproduce.results_file import code_digest, open_results, traces_digest

    if path is None:
        yield None
        return
    settings = {"code": code_digest(), "traces": traces_digest(data)}
    with open_results(path, "runs", RunOutcome, settings) as file:
        yield file


def _require_map(quick: bool, draw: bool, ray: str | None) -> None:
    """InputError if an option is given that only the map supports."""
    options = {"--quick": quick, "--draw": draw, "--ray": ray is not None}
    for option in (name for name, is_given in options.items() if is_given):
        raise InputError(f"{option}: only for the experiment map; leave it out")


def _setting(seeds: int) -> Setting:
    """Use real traces from the folder in MIGRATOR_DATA, otherwise generated ones."""
    from migrator.reproduce.experiment import Setting
    from migrator.workload.traces.generator import VARIABLE
    from migrator.workload.workloads import workload, workloads

    folder = os.environ.get(VARIABLE)
    if not folder:
        return Setting(seeds=tuple(range(seeds)))
    data = Path(folder)
    try:
        workload(list(workloads())[-1], data=data)  # the longest; fail at once, not minutes later
    except InputError as error:
        raise InputError(f"{VARIABLE}: {error}") from error
    return Setting(data, tuple(range(seeds)))


def _limited(setting: Setting, workloads: str | None, windows: int | None) -> Setting:
    from migrator.core.registry import pick
    from migrator.workload.workloads import workloads as workloads_by_name

    names = tuple(dict.fromkeys(name.strip().upper() for name in (workloads or "").split(",")))
    chosen = tuple(pick("workload", name, workloads_by_name()).name for name in names if name)
    return replace(setting, workloads=chosen or setting.workloads, most_windows=windows)


def _announce(
    setting: Setting, jobs: Sequence[SimulationJob], done: int, processes: int | None
) -> None:
    """Print which traces are used, what is left to run and the estimated time."""
    from migrator.io.task_pool import cores
    from migrator.reproduce.reproduce import cost_s

    traces = "generated traces" if setting.data is None else f"real traces from {setting.data}"
    at_once = processes or cores()
    minutes = sum(map(cost_s, jobs)) / at_once / 60
    long = "under a minute" if minutes < 1 else f"about {minutes:.0f} minutes"
    before = f", {done} done before" if done else ""
    print(f"{traces}, {len(jobs)} runs{before}, {at_once} at a time: {long}", file=sys.stderr)


def _reproduce_map(
    data: Path | None,
    *,
    quick: bool,
    draw: bool,
    runs: int | None,
    out: Path | None,
    results: Path | None,
    processes: int | None,
    ray: str | None,
    as_json: bool,
) -> None:
    """Run what the results file lacks and write FILE.html, FILE.png and FILE.jsonl.

    With `draw` run nothing, and draw the runs that every cell has.
    """
    from migrator.advise.trial import TrialResult
    from migrator.io.task_pool import cores, open_workers
    from migrator.report.html_page import (
        check_figure_path,
        check_page_path,
        write_figure,
        write_page,
    )
    from migrator.reproduce.map import FEWEST_RUNS, FULL_RUNS, NAME, MapSetting, measured, run_map
    from migrator.reproduce.map_page import map_figures, map_page, map_picture, summary
    from migrator.reproduce.results_file import open_results
    from migrator.simulation import tenant

    runs = runs or (FEWEST_RUNS if quick else FULL_RUNS)
    if runs < FEWEST_RUNS:
        raise InputError(f"--seeds: a map needs {FEWEST_RUNS} runs per cell or more; give as many")
    page = out or Path("out/map-quick.html" if quick else "out/map.html")
    page.parent.mkdir(parents=True, exist_ok=True)
    check_page_path(page, "--out")
    picture = page.with_suffix(".png")
    check_figure_path(picture, "--out")
    setting = MapSetting(data, quick, runs)
    trials = setting.trials()
    path = results or page.with_suffix(".jsonl")
    if draw and not path.is_file():
        raise InputError(f"--draw: there is no {path}; run the map first or name it with --results")
    with open_results(
        path, NAME, TrialResult, setting.as_json(), frozenset(trials), to_read=draw
    ) as file:
        left = len(trials) - len(file.finished)
        if draw and not setting.finished_runs(file.finished):
            raise InputError(
                f"--draw: {path} has no run of every cell yet; continue the map without --draw"
            )
        if left and not draw:
            at_once = processes or cores()
            where = "on Ray" if ray_address(ray) else f"{at_once} at a time"
            done = f", {len(file.finished)} done before" if file.finished else ""
            print(
                f"{len(setting.cells)} cells, {left} runs{done}, {where}; results are kept in "
                f"{path}, and the same command continues an interrupted map",
                file=sys.stderr,
            )
            warm([setting.ours])
            tenant.ready()
            with (
                open_workers(processes, ray_address(ray)) as workers,
                progress(left, "runs") as step,
            ):
                run_map(setting, file, workers, step)
        map_results, made_with = measured(setting, file.finished), file.settings
    write_page(map_page(map_results), page, "--out")
    write_figure(picture, "--out", lambda: map_page(map_results), lambda: map_picture(map_results))
    if as_json:
        figures = {**map_figures(map_results), "settings": made_with}
        print_json({**figures, "page": str(page), "picture": str(picture)})
        return
    print(summary(map_results))
    print(f"page     {page}\npicture  {picture}\nresults  {path}")


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
    figure: Figure = None,
    as_json: AsJson = False,
) -> None:
    """Say whether dynamic reconfiguration pays for a scenario's tenants, and what would help.

    Compares migrator with the best static split and with each peer, at 0.5, 1, 1.5 and 2 times the
    load, and tries more labels, shorter retraining, a larger board and prepared workers.
    """
    from migrator.advise.advice import consult, run_consultation
    from migrator.advise.advice_report import advice_json, advice_page, advice_picture, advice_text
    from migrator.io.task_pool import cores, open_workers
    from migrator.report.html_page import check_figure_path, write_figure
    from migrator.simulation import tenant
    from migrator.simulation.compare import SimulationJob
    from migrator.workload.file import read_scenario

    if figure is not None:
        check_figure_path(figure)
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
    if figure is not None:
        write_figure(
            figure, "--figure", lambda: advice_page(advice), lambda: advice_picture(advice)
        )
    if as_json:
        print_json(advice_json(advice))
        return
    print(advice_text(advice))
    if figure is not None:
        print(f"\nfigure  {figure}")


def _estimate(windows: int, at_once: int) -> str:
    seconds = _WINDOW_S * windows / at_once
    long = f"about {math.ceil(seconds / 30) / 2:g} minutes"
    return f"{windows} windows, {at_once} trials at a time: {long}"
