"""The verb `compare`: scenarios under several policies and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import app
from migrator.cli.cluster_verbs import cluster_outcomes, ray_address, read_run
from migrator.cli.options import AsJson, Drawn, Forecaster, RayAddress, Windows
from migrator.cli.printing import print_json, progress, warm
from migrator.cli.simulate_verbs import names_in, require_no_workers
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.core.cluster import ClusterOutcome, ClusterScenario
    from migrator.core.comparison import Row, Run
    from migrator.core.outcome import RunOutcome
    from migrator.simulate.compare import Job


@app.command()
def compare(
    scenarios: Annotated[
        list[Path], typer.Argument(metavar="SCENARIO...", help="Scenario files, version 1 (YAML).")
    ],
    policies: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME...",
            help="Policies to compare; `all`: every policy except the static splits.",
        ),
    ] = "migrator,migrator-replanned,ekya,astraea,paris,oracle",
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Runs per policy, each with another seed.")
    ] = 3,
    windows: Windows = None,
    forecaster: Forecaster = None,
    drawn: Drawn = False,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Runs, or GPUs of a cluster, in parallel; default: one per core."),
    ] = None,
    ray: RayAddress = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the comparison as FILE.html or FILE.png."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write records for `migrator dashboard`, one file per policy."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run scenarios under several policies and seeds and print a table of the results.

    The tenants of a cluster are placed once per seed; every policy runs that placement.
    """
    from migrator.core.comparison import summarise
    from migrator.policies.registry import policies as known
    from migrator.report.comparison import comparison_table

    if figure is not None:
        from migrator.report.comparison import draw_comparison
        from migrator.report.html_page import check_figure_path

        check_figure_path(figure)
    every = [each for each in known() if not each.startswith("static-")]
    names = every if policies == "all" else names_in(policies, "--policies")
    given = _given(scenarios, seeds)
    alone, clusters = _apart(given)
    if not clusters:
        require_no_workers(None, ray)
    if records is not None:
        from migrator.cli import simulated_records

        _require_no_cluster(clusters)
        files = simulated_records.files_in(records, names)
    jobs = _jobs(alone, names, windows, forecaster, drawn=drawn)
    many = [
        (each, read_run(each.path, seed, windows, forecaster)) for each, seed in _runs(clusters)
    ]
    runs = _compared(jobs, processes)
    placed = _compared_clusters(many, names, processes, ray, drawn=drawn)
    rows = summarise(sorted([*runs, *placed], key=lambda run: _place(run, given)))
    if figure is not None:
        draw_comparison(rows, figure)
    if records is not None:
        simulated_records.write_each(files, jobs, runs)
    if as_json:
        print_json(_answer(rows, runs, placed))
        return
    print(comparison_table(rows))
    if figure is not None:
        print(f"\nfigure  {figure}")
    if records is not None:
        print(f"\nrecords {records}  (look at them: migrator dashboard {records}/NAME.db ...)")


@dataclass(frozen=True)
class _Given:
    """A scenario to compare on."""

    path: Path
    called: str
    """Its name, or its path if another scenario has the same name."""
    seeds: range
    cluster: bool


def _given(paths: Sequence[Path], seeds: int) -> list[_Given]:
    """Read every scenario once, before anything runs."""
    from migrator.workload.cluster import is_cluster, read_cluster
    from migrator.workload.file import read_scenario

    clusters = {path: is_cluster(path) for path in dict.fromkeys(paths)}
    read = {
        path: (read_cluster if many else read_scenario)(path) for path, many in clusters.items()
    }
    names = [each.name for each in read.values()]
    return [
        _Given(
            path,
            each.name if names.count(each.name) == 1 else str(path),
            range(each.seed, each.seed + seeds),
            clusters[path],
        )
        for path, each in read.items()
    ]


def _apart(given: Sequence[_Given]) -> tuple[list[_Given], list[_Given]]:
    """Scenarios of one GPU, and cluster scenarios."""
    return [each for each in given if not each.cluster], [each for each in given if each.cluster]


def _runs(given: Sequence[_Given]) -> list[tuple[_Given, int]]:
    return [(each, seed) for each in given for seed in each.seeds]


def _place(run: Run, given: Sequence[_Given]) -> int:
    """The row order: that of the scenarios on the command line."""
    return [each.called for each in given].index(run.scenario)


def _jobs(
    given: Sequence[_Given],
    names: Sequence[str],
    windows: int | None,
    forecaster: str | None,
    *,
    drawn: bool,
) -> list[Job]:
    from migrator.simulate.compare import Job
    from migrator.workload.file import read_scenario

    return [
        Job(partial(read_scenario, each.path), name, forecaster, seed, windows, drawn, each.called)
        for each in given
        for name in names
        for seed in each.seeds
    ]


def _compared(jobs: Sequence[Job], processes: int | None) -> list[RunOutcome]:
    from migrator.simulate.compare import run_all

    warm({str(job.policy) for job in jobs})
    found: dict[int, RunOutcome] = {}
    with progress(len(jobs), "runs") as step:
        for place, outcome in run_all(jobs, processes):
            found[place] = outcome
            step()
    return [found[place] for place in sorted(found)]


def _compared_clusters(
    many: Sequence[tuple[_Given, ClusterScenario]],
    names: Sequence[str],
    processes: int | None,
    ray: str | None,
    *,
    drawn: bool,
) -> list[ClusterOutcome]:
    if not many:
        return []
    from migrator.cluster.placement.workers import open_workers

    warm({*names, "migrator"})
    found: list[ClusterOutcome] = []
    with open_workers(processes, ray_address(ray)) as workers:
        for given, read in many:
            this = replace(read, name=given.called)
            found += cluster_outcomes(this, names, workers, drawn=drawn)
    return found


def _require_no_cluster(clusters: Sequence[_Given]) -> None:
    if clusters:
        raise InputError(
            f"--records: not supported for cluster scenarios such as {clusters[0].path}; leave one "
            "of them out"
        )


def _answer(
    rows: Sequence[Row], runs: Sequence[RunOutcome], placed: Sequence[ClusterOutcome]
) -> dict[str, object]:
    from migrator.core.comparison import leads
    from migrator.report.run_json import cluster_outcome_json, lead_json, run_json

    return {
        "rows": [asdict(each) for each in rows],
        "leads": [lead_json(each) for each in leads(rows)],
        "runs": [*map(run_json, runs), *map(cluster_outcome_json, placed)],
    }
