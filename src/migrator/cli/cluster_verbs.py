"""Verbs for clusters: `migrator cluster plan`, `stop`, `drain`, `undrain`; simulated clusters."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migrator.cli.app import (
    BAD_INPUT,
    FAILED,
    AsJson,
    Jobs,
    RayAddress,
    Yes,
    app,
    complain,
    confirm,
    print_json,
    progress,
    require_confirmation,
    require_extra,
    warm,
)
from migrator.core.errors import MigratorError

if TYPE_CHECKING:
    from migrator.cluster.placement.workers import TaskWorkers
    from migrator.core.cluster import ClusterOutcome, ClusterPlan, ClusterScenario

group = typer.Typer(
    no_args_is_help=True,
    help="Place tenants on many GPUs, and control a served cluster.\n\n"
    "Example:  migrator cluster plan examples/cluster.yaml --out placement.html",
)
app.add_typer(group, name="cluster")


@group.command("plan")
def plan_cluster(
    scenario: Annotated[Path, typer.Argument(help="Cluster scenario, version 1 (YAML).")],
    current: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Current placement (output of --json); few tenants are moved."
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(min=0.1, max=1e6, help="Approximate time limit; the best so far is printed."),
    ] = 60.0,
    jobs: Jobs = None,
    ray: RayAddress = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the placement as FILE.html or .png.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Place tenants on GPUs for the highest goodput, with an upper bound.

    The exit code is 2 if some tenants have no room; the output lists them with the reason.

    Example:  migrator cluster plan examples/cluster.yaml --json > placement.json
    """
    from migrator.cluster.placement.place import MOST_PLANNED, place, read_current
    from migrator.cluster.placement.workers import open_workers
    from migrator.report.cluster import draw_placement, plan_table
    from migrator.report.html_page import check_figure_path
    from migrator.report.run_json import cluster_plan_json
    from migrator.workload.cluster import read_cluster

    if out is not None:
        check_figure_path(out, "--out")
    read = read_cluster(scenario)
    before = None if current is None else read_current(current)
    warm(["migrator"])
    with (
        open_workers(jobs, ray_address(ray)) as workers,
        progress(MOST_PLANNED, "sets of tenants planned, at most") as step,
    ):
        found = place(read, workers, current=before, seconds=seconds, on_planned=step)
    if out is not None:
        draw_placement(found, out)
    if as_json:
        print_json(cluster_plan_json(found))
    else:
        print(plan_table(found))
        if out is not None:
            print(f"figure  {out}")
    _require_room(found)


def read_run(
    path: Path, seed: int | None, windows: int | None, forecaster: str | None
) -> ClusterScenario:
    """Read a cluster scenario, with the options applied."""
    from migrator.core.scenario import HIGHEST_SEED, MOST_WINDOWS
    from migrator.forecast.selection import forecaster as forecaster_named
    from migrator.simulate.compare import require_range
    from migrator.workload.cluster import read_cluster

    require_range("--windows", windows, 1, MOST_WINDOWS)
    require_range("--seed", seed, 0, HIGHEST_SEED)
    read = read_cluster(path, seed, windows)
    # the same forecaster for the placement and for the run
    return replace(read, forecaster=forecaster_named(forecaster or read.forecaster).name)


def simulate_cluster(
    scenario: ClusterScenario, policies: Sequence[str | None], workers: TaskWorkers, *, drawn: bool
) -> list[ClusterOutcome]:
    """Run one placement under every policy: only the policy of each GPU differs."""
    from migrator.cluster.placement.place import place, require_all_placed, simulate_placed

    plan = place(scenario, workers)
    require_all_placed(plan)
    busy = sum(bool(each.tenants) for each in plan.gpus)
    with progress(busy * len(policies), f"GPUs of {scenario.name}") as step:
        return [
            simulate_placed(scenario, plan, workers, policy=each, drawn=drawn, step=step)
            for each in policies
        ]


def ray_address(option: str | None) -> str | None:
    """The Ray cluster to use: from the option, or from RAY_ADDRESS if ray is installed."""
    if option is not None:
        return option
    known = os.environ.get("RAY_ADDRESS")
    return known if known and find_spec("ray") is not None else None


def _require_room(plan: ClusterPlan) -> None:
    """Exit with code 2 if some tenants have no GPU; the plan has already been printed."""
    if plan.unplaced:
        names = ", ".join(each.tenant for each in plan.unplaced[:3])
        more = f" and {len(plan.unplaced) - 3} more" if len(plan.unplaced) > 3 else ""
        complain(f"no GPU has room for {names}{more}; the output above says what would help")
        raise typer.Exit(BAD_INPUT)


_LOOK_S = 0.5
_BEGIN_S = 60.0
"""Seconds for the head to decide whether the tenants have room elsewhere."""

Address = Annotated[str, typer.Argument(help="Ray cluster; `auto`: the one running here.")]
Scenario = Annotated[
    str | None, typer.Option(metavar="NAME", help="Scenario, if Ray serves several.")
]
Gpu = Annotated[
    str, typer.Argument(metavar="GPU", help="Name of the GPU in `migrator status --cluster`.")
]


@group.command("stop")
def stop(address: Address = "auto", scenario: Scenario = None, yes: Yes = False) -> None:
    """Drain every GPU of a cluster served by `migrator serve --cluster`, and stop it.

    Ray keeps running; weights and labels stay in the shared store. Works without the head, too.

    Example:  migrator cluster stop auto --yes
    """
    require_extra("cluster", "migrator cluster stop")
    from migrator.cluster.fleet.ray_connection import choose_cluster, connect, known_clusters
    from migrator.cluster.fleet.ray_head import stop_cluster

    require_confirmation(yes)
    with connect(address) as ray:
        name = choose_cluster(known_clusters(ray), scenario)
        words = f"Requests of all tenants of {name} are answered, new ones refused from now on."
        confirm(words, yes)
        ending = stop_cluster(ray, name)
    print(f"{name} is served no more: {ending.words}")


@group.command("drain")
def drain(
    gpu: Gpu,
    address: Address = "auto",
    scenario: Scenario = None,
    yes: Yes = False,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=1e6, help="Longest time to wait until it is empty.")
    ] = 600.0,
) -> None:
    """Move all tenants off a GPU without failing requests, so that its machine can be removed.

    Returns when the GPU serves no tenant. None is placed on it until `migrator cluster undrain`,
    also after a restart. Refused if a tenant has no room elsewhere.

    Example:  migrator cluster drain rack-a-1 --yes
    """
    require_extra("cluster", "migrator cluster drain")
    from migrator.cluster.fleet.ray_connection import connect, find_head

    require_confirmation(yes)
    with connect(address) as ray:
        head = find_head(ray, scenario)
        confirm(f"Every tenant of {gpu} is moved to other GPUs.", yes)
        _order(ray, head, gpu, drained=True)
        until_s = time.monotonic() + seconds
        while left := _served_on(ray, head, gpu):
            if time.monotonic() > until_s:
                names = ", ".join(left)
                complain(f"{gpu} still serves {names}; draining continues, see `migrator status`")
                raise typer.Exit(FAILED)
            time.sleep(_LOOK_S)
    print(f"{gpu} is drained: it serves no tenant and can be removed")


@group.command("undrain")
def undrain(gpu: Gpu, address: Address = "auto", scenario: Scenario = None) -> None:
    """Allow tenants on a drained GPU again.

    They are moved there at the next window's start if that increases goodput.

    Example:  migrator cluster undrain rack-a-1
    """
    require_extra("cluster", "migrator cluster undrain")
    from migrator.cluster.fleet.ray_connection import connect, find_head

    with connect(address) as ray:
        print(_order(ray, find_head(ray, scenario), gpu, drained=False))


def _order(ray: Any, head: Any, gpu: str, *, drained: bool) -> str:
    from migrator.cli.cluster_serve import no_answer

    try:
        words: str = ray.get(head.drain.remote(gpu, drained), timeout=_BEGIN_S)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MigratorError):
            raise error.cause from error
        raise
    except (ray.exceptions.RayError, TimeoutError) as error:
        raise no_answer(error) from error
    return words


def _served_on(ray: Any, head: Any, gpu: str) -> Sequence[str]:
    """Tenants that the GPU's daemon still serves."""
    from migrator.cli.cluster_serve import ask_head

    unknown = ["its tenants"]
    try:
        gpus = ask_head(ray, head, "overview")["gpus"]
    except MigratorError:  # Ray restarts the head, which continues draining
        return unknown
    served: Sequence[str] = next(
        (e.get("holds", unknown) for e in gpus if e["gpu"] == gpu), unknown
    )
    return served
