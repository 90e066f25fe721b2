"""Verbs about many GPUs: `migrator cluster plan`, and runs where `simulate` is given a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import app
from migrator.cli.plan_verbs import AsJson
from migrator.cli.printing import BAD_INPUT, complain, print_json, progress, warm
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.cluster.placement.workers import Workers
    from migrator.core.cluster import ClusterOutcome, ClusterPlan, ClusterScenario

group = typer.Typer(
    no_args_is_help=True,
    help="Many GPUs: which tenant lives on which.\n\n"
    "Example:  migrator cluster plan examples/cluster.yaml --out placement.html",
)
app.add_typer(group, name="cluster")

Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, max=1024, help="GPUs of a cluster at a time; default one per core."
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Work on the Ray cluster there, `auto` for the one running here; default "
        "RAY_ADDRESS where ray is installed, else processes.",
    ),
]


@group.command("plan")
def plan_cluster(
    scenario: Annotated[Path, typer.Argument(help="Cluster scenario, version 1 (YAML).")],
    current: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where tenants live now, as --json printed it: few will move."
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(min=0.1, max=1e6, help="Answer after about so long, with what is known."),
    ] = 60.0,
    jobs: Jobs = None,
    ray: RayAddress = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it as FILE.html or FILE.png.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Place tenants on GPUs for the highest goodput, with an upper bound.

    The exit code is 2 where not every tenant has room; the answer says who has none and why.

    Example:  migrator cluster plan examples/cluster.yaml --json > placement.json
    """
    from migrator.cluster.placement.current import read_current
    from migrator.cluster.placement.place import MOST_PLANNED, place
    from migrator.cluster.placement.workers import open_workers
    from migrator.report.cluster_json import plan_json
    from migrator.report.cluster_report import check_placement_path, draw_placement
    from migrator.report.cluster_text import plan_table
    from migrator.workload.cluster import read_cluster

    if out is not None:
        check_placement_path(out)
    read = read_cluster(scenario)
    lived = None if current is None else read_current(current)
    warm(["migrator"])
    with (
        open_workers(jobs, ray_address(ray)) as workers,
        progress(MOST_PLANNED, "sets of tenants planned, at most") as step,
    ):
        found = place(read, workers, current=lived, seconds=seconds, told=step)
    if out is not None:
        draw_placement(found, out)
    if as_json:
        print_json(plan_json(found))
    else:
        print(plan_table(found))
        if out is not None:
            print(f"figure  {out}")
    _require_room(found)


def simulate_cluster(
    scenario: Path,
    policies: Sequence[str | None],
    *,
    side_by_side: bool,
    windows: int | None,
    forecaster: str | None,
    seed: int | None,
    drawn: bool,
    jobs: int | None,
    ray: str | None,
    as_json: bool,
) -> None:
    """Place a cluster's tenants, run every GPU, and print what became of every request."""
    from migrator.cluster.placement.workers import open_workers
    from migrator.core.comparison import leads, summarise
    from migrator.report.cluster_json import outcome_json
    from migrator.report.cluster_text import outcome_table
    from migrator.report.run_json import runs_json
    from migrator.report.run_text import comparison_table

    read = read_run(scenario, seed, windows, forecaster)
    warm({each or read.policy for each in policies} | {"migrator"})
    with open_workers(jobs, ray_address(ray)) as workers:
        outcomes = cluster_outcomes(read, policies, workers, drawn=drawn)
    if as_json:
        runs = [outcome_json(each) for each in outcomes]
        print_json(runs_json(runs, leads(summarise(outcomes))[0] if side_by_side else None))
        return
    tables = [outcome_table(each) for each in outcomes]
    if len(outcomes) > 1:
        tables.append(comparison_table(summarise(outcomes)))
    print("\n\n".join(tables))


def read_run(
    path: Path, seed: int | None, windows: int | None, forecaster: str | None
) -> ClusterScenario:
    """A cluster scenario to be run, with what the options say in its place."""
    from migrator.core.scenario import HIGHEST_SEED, MOST_WINDOWS
    from migrator.forecast.registry import forecaster as forecaster_named
    from migrator.workload.cluster import read_cluster

    for option, value, least, most in (
        ("--windows", windows, 1, MOST_WINDOWS),
        ("--seed", seed, 0, HIGHEST_SEED),
    ):
        if value is not None and not least <= value <= most:
            raise InputError(f"{option}: {value} is out of range; give {least} to {most}")
    read = read_cluster(path, seed, windows)
    # who looks ahead for placing is who looks ahead while it runs
    return replace(read, forecaster=forecaster_named(forecaster or read.forecaster).name)


def cluster_outcomes(
    scenario: ClusterScenario, policies: Sequence[str | None], workers: Workers, *, drawn: bool
) -> list[ClusterOutcome]:
    """One placement, run under every policy: they differ in nothing but what each GPU does."""
    from migrator.cluster.placement.place import place
    from migrator.cluster.placement.simulate import require_all_placed, simulate_placed

    plan = place(scenario, workers)
    require_all_placed(plan)
    busy = sum(bool(each.tenants) for each in plan.gpus)
    with progress(busy * len(policies), f"GPUs of {scenario.name}") as step:
        return [
            simulate_placed(scenario, plan, workers, policy=each, drawn=drawn, step=step)
            for each in policies
        ]


def ray_address(option: str | None) -> str | None:
    """The Ray cluster to use: as asked for, or as the environment says where ray is installed."""
    if option is not None:
        return option
    known = os.environ.get("RAY_ADDRESS")
    return known if known and find_spec("ray") is not None else None


def _require_room(plan: ClusterPlan) -> None:
    """The answer is printed already; the sentence and the exit code are for scripts."""
    if plan.unplaced:
        names = ", ".join(each.tenant for each in plan.unplaced[:3])
        more = f" and {len(plan.unplaced) - 3} more" if len(plan.unplaced) > 3 else ""
        complain(f"no GPU has room for {names}{more}; the answer says what would help")
        raise typer.Exit(BAD_INPUT)
