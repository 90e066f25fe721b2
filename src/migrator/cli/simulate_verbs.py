"""Verbs for simulated runs: simulate, compare, policies, forecasters, schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migrator.cli.app import (
    AsJson,
    Drawn,
    Figure,
    Forecaster,
    Jobs,
    Processes,
    RayAddress,
    ScenarioFile,
    Seed,
    Windows,
    app,
    print_json,
    progress,
    require_known,
    say,
    warm,
)
from migrator.cli.cluster_verbs import ray_address, read_run, simulate_cluster
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.core.batch import Batch
    from migrator.records.outcome import RunOutcome
    from migrator.records.rows import RunRecords
    from migrator.simulation.compare import SimulationJob


@app.command()
def simulate(
    scenario: ScenarioFile,
    policy: Annotated[
        str | None,
        typer.Option(
            *("--policy", "--policies"),
            metavar="NAME[,NAME...]",
            help="Policies to run (`migrator policies` lists them); default: the scenario's.",
        ),
    ] = None,
    windows: Windows = None,
    forecaster: Forecaster = None,
    seed: Seed = None,
    drawn: Drawn = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a report with every window.")
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(metavar="FILE.db", help="Write records for `migrator dashboard FILE.db`."),
    ] = None,
    batches: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Append a row per batch of requests to this file."),
    ] = None,
    at_once: Jobs = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a scenario request by request and report latency, accuracy and goodput.

    For a cluster scenario, tenants are placed first, then every GPU is simulated (--jobs, --ray).
    """
    from migrator.cluster.file import is_cluster
    from migrator.cluster.report import cluster_outcome_json, outcome_table
    from migrator.report.html_page import check_page_path
    from migrator.report.run_json import run_json
    from migrator.report.run_text import run_table
    from migrator.simulation.compare import SimulationJob
    from migrator.workload.drift_windows import missing_drift
    from migrator.workload.file import read_scenario

    names: Sequence[str | None] = [None] if policy is None else _names_in(policy)
    if is_cluster(scenario):
        for option, file in (("report", report), ("records", records), ("batches", batches)):
            if file is not None:
                raise InputError(
                    f"--{option}: not supported for cluster scenarios; leave it out, or use --json"
                )
        read = read_run(scenario, seed, windows, forecaster)
        if None in names:
            require_known(scenario, policy=read.policy, forecaster=None)
        warm({name or read.policy for name in names} | {"migrator"})
        from migrator.io.task_pool import open_workers

        with open_workers(at_once, ray_address(ray)) as workers:
            placed = simulate_cluster(read, names, workers, drawn=drawn)
        _print_runs(placed, cluster_outcome_json, outcome_table, as_json)
        return
    if at_once is not None or ray is not None:
        option = "--jobs" if ray is None else "--ray"
        raise InputError(f"{option}: only for cluster scenarios; leave it out for one GPU")
    if report is not None:
        check_page_path(report)
    if records is not None:
        from migrator.records.simulated import check_records_path, write_simulations

        check_records_path(records)
    scenario_given = read_scenario(scenario)
    require_known(
        scenario,
        policy=scenario_given.policy if None in names else None,
        forecaster=None if forecaster else scenario_given.forecaster,
    )
    source = partial(read_scenario, scenario)
    is_recorded = report is not None or records is not None
    with _recording(batches, names) as put:
        jobs = [
            SimulationJob(
                *(source, name, forecaster, seed, windows, drawn), record=is_recorded, batches=put
            )
            for name in names
        ]
        outcomes = list(_run(jobs))
    if warning := missing_drift(read_scenario(scenario, seed, windows)):
        say(f"warning: {warning}")
    _print_runs(outcomes, run_json, run_table, as_json)  # first, as files may be refused
    if report is not None:
        _write_report(outcomes, report)
    if records is not None:
        write_simulations(records, _recorded(outcomes))
    if report is not None and not as_json:
        print(f"\nreport  {report}")
    if records is not None and not as_json:
        print(f"\nrecords {records}  (look at them: migrator dashboard {records})")


@contextmanager
def _recording(
    batches: Path | None, names: Sequence[str | None]
) -> Iterator[Callable[[Batch], None] | None]:
    """What gets the batches of a run; None: nothing does."""
    from migrator.records.batches import OPTION, BatchFile
    from migrator.records.simulated import BEGAN_S

    if batches is None:
        yield None
        return
    if len(names) > 1:
        raise InputError(f"{OPTION}: for one policy at a time; name one with --policy")
    file = BatchFile(batches, BEGAN_S)
    try:
        yield file.put
    finally:
        file.close()


def _names_in(text: str) -> list[str]:
    from migrator.policies.registry import policy

    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError("--policy: no name given; `migrator policies` lists them")
    return [policy(name).name for name in dict.fromkeys(names)]


def _run(jobs: Sequence[SimulationJob]) -> Iterator[RunOutcome]:
    prepared = [(job, job.scenario()) for job in jobs]
    warm(scenario.policy for _, scenario in prepared)
    with progress(sum(scenario.windows for _, scenario in prepared), "windows") as step:
        for job, _ in prepared:
            yield job.run(step)


def _recorded(outcomes: Iterable[RunOutcome]) -> list[RunRecords]:
    return [outcome.records for outcome in outcomes if outcome.records is not None]


def _write_report(outcomes: Sequence[RunOutcome], path: Path) -> None:
    from migrator.core.catalogue import board
    from migrator.records.runs import recorded_run
    from migrator.report.html_page import write_page
    from migrator.report.run_page import run_page

    runs = [recorded_run(records) for records in _recorded(outcomes)]
    write_page(run_page(runs, board(runs[0].records.run.board)), path)


def _print_runs(
    outcomes: Sequence[Any],
    to_json: Callable[[Any], dict[str, Any]],
    to_text: Callable[[Any], str],
    as_json: bool,
) -> None:
    """Print runs of one GPU or of a cluster, and compare them if there are several."""
    from migrator.core.comparison import summarise
    from migrator.report.comparison import comparison_table

    if as_json:
        runs = [to_json(outcome) for outcome in outcomes]
        print_json(runs[0] if len(runs) == 1 else runs)
        return
    tables = [to_text(outcome) for outcome in outcomes]
    if len(outcomes) > 1:
        tables.append(comparison_table(summarise(outcomes)))
    print("\n\n".join(tables))


# compare


@app.command()
def compare(
    scenarios: Annotated[
        list[Path], typer.Argument(metavar="SCENARIO...", help="Scenario files, version 1 (YAML).")
    ],
    policies: Annotated[
        str,
        typer.Option(
            *("--policy", "--policies"),
            metavar="NAME[,NAME...]",
            help="Policies to compare; `all`: every policy except the static splits.",
        ),
    ] = "migrator,migrator-replanned,ekya,astraea,paris-reconfiguring,oracle",
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Runs per policy, each with another seed.")
    ] = 3,
    windows: Windows = None,
    forecaster: Forecaster = None,
    drawn: Drawn = False,
    processes: Processes = None,
    figure: Figure = None,
    as_json: AsJson = False,
) -> None:
    """Run scenarios under several policies and seeds and print a table of the results."""
    from migrator.cluster.file import is_cluster
    from migrator.core.comparison import summarise
    from migrator.policies.registry import policies as policies_by_name
    from migrator.report.comparison import comparison_table, draw_comparison
    from migrator.report.html_page import check_figure_path
    from migrator.report.run_json import rows_json, run_json
    from migrator.simulation.compare import SimulationJob
    from migrator.workload.file import read_scenario

    if figure is not None:
        check_figure_path(figure)
    every = [name for name in policies_by_name() if not name.startswith("static-")]
    names = every if policies == "all" else _names_in(policies)
    paths = list(dict.fromkeys(scenarios))
    for path in paths:
        if is_cluster(path):
            raise InputError(
                f"{path}: this is a scenario of many GPUs; use `migrator simulate {path} --policy "
                f"{','.join(names[:2])}`"
            )
    read = {path: read_scenario(path) for path in paths}
    titles = [scenario.name for scenario in read.values()]
    jobs = []
    for path, scenario in read.items():
        require_known(path, policy=None, forecaster=None if forecaster else scenario.forecaster)
        title = scenario.name if titles.count(scenario.name) == 1 else str(path)
        source = partial(read_scenario, path)
        jobs += [
            SimulationJob(source, name, forecaster, seed, windows, drawn, name=title)
            for name in names
            for seed in range(scenario.seed, scenario.seed + seeds)
        ]
    runs = _run_parallel(jobs, processes)
    rows = summarise(runs)
    labels = [label.words for label in dict.fromkeys(run.labels for run in runs)]
    if figure is not None:
        draw_comparison(rows, figure, notes=labels)
    if as_json:
        print_json({"rows": rows_json(rows), "runs": [run_json(run) for run in runs]})
        return
    print(comparison_table(rows))
    for line in labels:
        print(line)
    if figure is not None:
        print(f"\nfigure  {figure}")


def _run_parallel(jobs: Sequence[SimulationJob], processes: int | None) -> list[RunOutcome]:
    from migrator.simulation.compare import run_all

    warm({str(job.policy) for job in jobs})
    outcomes: dict[int, RunOutcome] = {}
    with progress(len(jobs), "runs") as step:
        for place, outcome in run_all(jobs, processes):
            outcomes[place] = outcome
            step()
    return [outcomes[place] for place in sorted(outcomes)]


# Lists


@app.command()
def policies(
    name: Annotated[
        str | None, typer.Argument(help="Describe this policy and how it was adapted.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the policies: how each shares the GPU, what it observes, when it decides."""
    from migrator.policies.registry import about, policy
    from migrator.policies.registry import policies as policies_by_name
    from migrator.report.run_json import pick

    fields = ("name", "summary", "sharing", "sight", "every_s", "on_completion")
    chosen = list(policies_by_name().values()) if name is None else [policy(name)]
    if as_json:
        print_json([{**pick(shown, *fields), "about": about(shown.name)} for shown in chosen])
    elif name is not None:
        print(about(name))
    else:
        for shown in chosen:
            print(f"{shown.name:<20} {shown.sharing:<14} {shown.summary}")


@app.command()
def forecasters(as_json: AsJson = False) -> None:
    """List the forecasters; the last line says how others are named."""
    from migrator.forecast.selection import forecasters as forecasters_by_name

    if as_json:
        print_json(
            [
                {"name": forecaster.name, "summary": forecaster.summary}
                for forecaster in forecasters_by_name().values()
            ]
        )
        return
    for forecaster in forecasters_by_name().values():
        print(f"{forecaster.name:<20} {forecaster.summary}")
    print("and informer:FILE, package.module:NAME (docs/forecasting.md)")


@app.command()
def schema() -> None:
    """Print the JSON schema of scenario files."""
    from migrator.workload.entries import scenario_schema

    print_json(scenario_schema())
