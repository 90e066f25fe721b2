"""Verbs for clusters: `migrator cluster plan`, `stop`, `drain`, `undrain`; clusters of other verbs.

`migrator simulate` runs a simulated one, `migrator serve --cluster` a head and its agents on Ray.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
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
    require_known,
    say,
    warm,
)
from migrator.core.errors import InputError, MigratorError

if TYPE_CHECKING:
    from migrator.cluster.fleet.cluster_map import ClusterMap
    from migrator.cluster.fleet.cluster_run import ClusterRun
    from migrator.cluster.scenario import ClusterPlan, ClusterScenario
    from migrator.cluster.simulate import ClusterOutcome
    from migrator.io.task_pool import TaskWorkers

group = typer.Typer(
    no_args_is_help=True,
    help="Place tenants on many GPUs, and control a served cluster.\n\n"
    "Example:  migrator cluster plan examples/cluster.yaml",
)
app.add_typer(group, name="cluster")
_LOOK_S = 0.5
_BEGIN_S = 60.0
"""Seconds for the head to decide whether the tenants have room elsewhere."""
SILENT_S = 60.0
"""Seconds to wait for a starting head that does not answer."""
_VARIABLES = ("MIGRATOR_DATA", "MIGRATOR_EMULATED_PACE")
"""Environment variables passed on to agents; tokens stay on this machine."""
_NOT_SHARED = (
    "--shared is not given: weights and labels are lost with their machine; name a folder or "
    "address that every machine can reach"
)


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
    as_json: AsJson = False,
) -> None:
    """Place tenants on GPUs for the highest goodput, with an upper bound.

    The exit code is 2 if some tenants have no room; the output lists them with the reason.

    Example:  migrator cluster plan examples/cluster.yaml --json > placement.json
    """
    from migrator.cluster.file import read_cluster, read_current
    from migrator.cluster.placement.place import MOST_PLANNED, place
    from migrator.cluster.report import cluster_plan_json, plan_table
    from migrator.io.task_pool import open_workers

    read = read_cluster(scenario)
    before = None if current is None else read_current(current)
    warm(["migrator"])
    with (
        open_workers(jobs, ray_address(ray)) as workers,
        progress(MOST_PLANNED, "sets of tenants planned, at most") as step,
    ):
        plan = place(read, workers, current=before, seconds=seconds, on_planned=step)
    if as_json:
        print_json(cluster_plan_json(plan))
    else:
        print(plan_table(plan))
    _require_room(plan)


def read_run(
    path: Path, seed: int | None, windows: int | None, forecaster: str | None
) -> ClusterScenario:
    """Read a cluster scenario, with the options applied."""
    from migrator.cluster.file import read_cluster
    from migrator.core.scenario import HIGHEST_SEED, MOST_WINDOWS
    from migrator.forecast.selection import forecaster as forecaster_named
    from migrator.simulation.compare import require_range

    require_range("--windows", windows, 1, MOST_WINDOWS)
    require_range("--seed", seed, 0, HIGHEST_SEED)
    read = read_cluster(path, seed, windows)
    require_known(path, policy=None, forecaster=None if forecaster else read.forecaster)
    # the same forecaster for the placement and for the run
    return replace(read, forecaster=forecaster_named(forecaster or read.forecaster).name)


def simulate_cluster(
    scenario: ClusterScenario, policies: Sequence[str | None], workers: TaskWorkers, *, drawn: bool
) -> list[ClusterOutcome]:
    """Run one placement under every policy: only the policy of each GPU differs."""
    from migrator.cluster.placement.place import place
    from migrator.cluster.simulate import simulate_placed

    plan = place(scenario, workers)
    plan.require_all_placed()
    busy = sum(bool(gpu.tenants) for gpu in plan.gpus)
    with progress(busy * len(policies), f"GPUs of {scenario.name}") as step:
        return [
            simulate_placed(scenario, plan, workers, policy=policy, drawn=drawn, step=step)
            for policy in policies
        ]


def ray_address(option: str | None) -> str | None:
    """The Ray cluster to use: from the option, or from RAY_ADDRESS if ray is installed."""
    if option is not None:
        return option
    address = os.environ.get("RAY_ADDRESS")
    return address if address and find_spec("ray") is not None else None


def _require_room(plan: ClusterPlan) -> None:
    """Exit with code 2 if some tenants have no GPU; the plan has already been printed."""
    if plan.unplaced:
        names = ", ".join(unplaced.tenant for unplaced in plan.unplaced[:3])
        more = f" and {len(plan.unplaced) - 3} more" if len(plan.unplaced) > 3 else ""
        complain(f"no GPU has room for {names}{more}; the output above says what would help")
        raise typer.Exit(BAD_INPUT)


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
    from migrator.cluster.fleet.ray_clusters import choose_cluster, connect, known_clusters
    from migrator.cluster.fleet.stop import stop_cluster

    require_confirmation(yes)
    with connect(address) as ray:
        name = choose_cluster(known_clusters(ray), scenario)
        consequence = (
            f"Requests of all tenants of {name} are answered, new ones refused from now on."
        )
        confirm(consequence, yes)
        ending = stop_cluster(ray, name)
    print(f"{name} is served no more: {ending.message}")


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
    from migrator.cluster.fleet.ray_clusters import connect, find_head

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
    from migrator.cluster.fleet.ray_clusters import connect, find_head

    with connect(address) as ray:
        print(_order(ray, find_head(ray, scenario), gpu, drained=False))


def _order(ray: Any, head: Any, gpu: str, *, drained: bool) -> str:
    from migrator.cluster.fleet.ray_head import no_answer

    try:
        sentence: str = ray.get(head.drain.remote(gpu, drained), timeout=_BEGIN_S)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MigratorError):
            raise error.cause from error
        raise
    except (ray.exceptions.RayError, TimeoutError) as error:
        raise no_answer(error) from error
    return sentence


def _served_on(ray: Any, head: Any, gpu: str) -> Sequence[str]:
    from migrator.cluster.fleet.ray_head import ask_head

    unknown = ["its tenants"]
    try:
        gpus = ask_head(ray, head, "overview")["gpus"]
    except MigratorError:  # Ray restarts the head, which continues draining
        return unknown
    served: Sequence[str] = next(
        (row.get("holds", unknown) for row in gpus if row["gpu"] == gpu), unknown
    )
    return served


def serve_cluster(
    scenario: Path,
    address: str,
    *,
    driver: str,
    shared: str | None,
    state: Path | None,
    detach: bool,
) -> None:
    """Serve a cluster scenario until Ctrl-C; with `detach` return once all tenants are served."""
    from migrator.cluster.fleet.cluster_run import read_run as read_served
    from migrator.cluster.fleet.ray_clusters import connect, known_clusters, list_nodes
    from migrator.cluster.fleet.ray_head import ask_head, start_head
    from migrator.cluster.fleet.stop import stop_cluster
    from migrator.io.folders import state_folder

    folder = state_folder(state).absolute()
    run = read_served(
        scenario,
        driver=driver,
        shared=None if shared is None else store_address(shared),
        state=folder,
        began_s=time.time(),
    )
    variables = {
        variable: os.environ[variable] for variable in _VARIABLES if variable in os.environ
    }
    with connect(address) as ray:
        if shared is None and len({node.address for node in list_nodes(ray)}) > 1:
            say(_NOT_SHARED)
        ours = run.name not in known_clusters(ray)
        head = start_head(ray, run, variables)
        if not ask_head(ray, head, "serves", run, wait_s=SILENT_S):
            raise InputError(
                f"{run.name} is already served there with another scenario, driver or store; stop "
                "it first with `migrator cluster stop`, or give this one another name"
            )
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: drain the GPUs
        try:
            served = _wait_until_served(ray, head, run)
            homes = len(set(served.homes.values()))
            say(f"serving {len(served.homes)} tenants on {homes} GPUs; requests: migrator gateway")
            if empty := len(run.scenario.gpus) - homes:
                say(f"GPUs without tenants: {empty}; the tenants fit on the others")
            if not detach:
                _watch(ray, head)
        except BaseException as error:
            if ours or isinstance(error, KeyboardInterrupt):
                say("draining every GPU")
                stopped = stop_cluster(ray, run.name)
                say(stopped.message)
                if isinstance(error, KeyboardInterrupt) and stopped.clean:
                    return
            else:
                say(f"{run.name} keeps running as before; `migrator cluster stop` ends it")
            raise


def store_address(given: str) -> str:
    """The store's address as every machine understands it: folders become absolute paths."""
    return given if "://" in given else str(Path(given).absolute())


def _wait_until_served(ray: Any, head: Any, run: ClusterRun) -> ClusterMap:
    """Wait until every tenant is served. Returns the cluster map."""
    import msgspec

    from migrator.cluster.fleet.cluster_map import ClusterMap
    from migrator.cluster.fleet.ray_head import ask_head

    wanted = {tenant.name for tenant in run.scenario.tenants}
    reported: set[str] = set()
    answered_s = time.monotonic()
    while True:
        try:
            current = msgspec.json.decode(ask_head(ray, head, "map"), type=ClusterMap)
            ended, gpus = ask_head(ray, head, "ended"), ask_head(ray, head, "overview")["gpus"]
        except MigratorError:  # the head may be restarting or busy
            if time.monotonic() - answered_s > SILENT_S:
                raise
            time.sleep(_LOOK_S)
            continue
        answered_s = time.monotonic()
        if wanted <= set(current.homes):
            return current
        if ended is not None:
            raise InputError(ended)
        for sentence in (f"{gpu['gpu']}: {gpu['words'] or gpu['state']}" for gpu in gpus):
            if sentence not in reported:
                reported.add(sentence)
                say(sentence)
        time.sleep(_LOOK_S)


def _watch(ray: Any, head: Any) -> None:
    from migrator.cluster.fleet.ray_head import ask_head

    before: dict[str, str] = {}
    while True:
        with suppress(MigratorError):  # the head is restarting
            seen = ask_head(ray, head, "overview")
            now = {row["gpu"]: f"{row['state']} {row['words']}".strip() for row in seen["gpus"]}
            now |= {
                name: f"on {row['gpu']}" if row["state"] == "served" else row["words"]
                for name, row in seen["tenants"].items()
            }
            for name, state in now.items():
                if before and before.get(name) != state:
                    say(f"{name}: {state}")
            before = now
        time.sleep(_LOOK_S)
