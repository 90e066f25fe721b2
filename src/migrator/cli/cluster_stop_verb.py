"""Verbs that act on a cluster that is served: `migrator cluster stop`, `drain`, `undrain`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from migrator.cli.cluster_verbs import group
from migrator.cli.printing import FAILED, complain, require_extra
from migrator.core.errors import InputError, MigratorError

_LOOK_S = 0.5
_BEGIN_S = 60.0
"""A head says within so long whether the tenants have room elsewhere."""

_ADDRESS = typer.Argument(help="Of the Ray cluster, `auto` for the one running here.")
_SCENARIO = typer.Option(metavar="NAME", help="Which cluster, where Ray serves several.")
Address = Annotated[str, _ADDRESS]
Scenario = Annotated[str | None, _SCENARIO]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Gpu = Annotated[str, typer.Argument(metavar="GPU", help="As `migrator status --cluster` names it.")]


@group.command("stop")
def stop(address: Address = "auto", scenario: Scenario = None, yes: Yes = False) -> None:
    """Drain every GPU of a cluster that `migrator serve --cluster` left running, and end it.

    Ray itself goes on; weights and labels stay in the shared store. It works without the head, too.

    Example:  migrator cluster stop auto --yes
    """
    require_extra("cluster", "migrator cluster stop")
    from migrator.cluster.fleet.ray_connection import begun, connected, the_only
    from migrator.cluster.fleet.ray_stop import end_cluster

    _require_terminal(yes)
    with connected(address) as ray:
        name = the_only(begun(ray), scenario)
        words = f"Requests of all tenants of {name} are answered, new ones refused from now on."
        _confirm(words, yes)
        ending = end_cluster(ray, name)
    print(f"{name} is served no more: {ending.words}")


@group.command("drain")
def drain(
    gpu: Gpu,
    address: Address = "auto",
    scenario: Scenario = None,
    yes: Yes = False,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=1e6, help="Wait no longer until it is empty.")
    ] = 600.0,
) -> None:
    """Move every tenant off a GPU, without a failed request, so that its machine can be removed.

    Returns when the GPU serves no tenant. No tenant is placed on it until `migrator cluster
    undrain`, also after a restart. It is refused where a tenant has no room elsewhere.

    Example:  migrator cluster drain rack-a-1 --yes
    """
    require_extra("cluster", "migrator cluster drain")
    from migrator.cluster.fleet.ray_connection import connected, head_of

    _require_terminal(yes)
    with connected(address) as ray:
        head = head_of(ray, scenario)
        _confirm(f"Every tenant of {gpu} is moved to other GPUs.", yes)
        _order(ray, head, gpu, drained=True)
        until_s = time.monotonic() + seconds
        while left := _served_on(ray, head, gpu):
            if time.monotonic() > until_s:
                names = ", ".join(left)
                complain(f"{gpu} still serves {names} and goes on to be drained; see status")
                raise typer.Exit(FAILED)
            time.sleep(_LOOK_S)
    print(f"{gpu} is drained: it serves no tenant and can be removed")


@group.command("undrain")
def undrain(gpu: Gpu, address: Address = "auto", scenario: Scenario = None) -> None:
    """Let tenants be placed on a GPU again that was drained.

    They come at the next window's start where that pays.

    Example:  migrator cluster undrain rack-a-1
    """
    require_extra("cluster", "migrator cluster undrain")
    from migrator.cluster.fleet.ray_connection import connected, head_of

    with connected(address) as ray:
        print(_order(ray, head_of(ray, scenario), gpu, drained=False))


def _order(ray: Any, head: Any, gpu: str, *, drained: bool) -> str:
    try:
        words: str = ray.get(head.drain.remote(gpu, drained), timeout=_BEGIN_S)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MigratorError):
            raise error.cause from error
        raise
    except (ray.exceptions.RayError, TimeoutError) as error:
        raise MigratorError(
            f"the head of the cluster does not answer ({type(error).__name__}); Ray starts it "
            "again, try in some seconds"
        ) from error
    return words


def _served_on(ray: Any, head: Any, gpu: str) -> Sequence[str]:
    """Tenants that the GPU's daemon still has."""
    from migrator.cli.cluster_serve import ask_head

    unknown = ["its tenants"]
    try:
        told = ask_head(ray, head, "overview")
    except MigratorError:  # Ray starts the head again, and it goes on draining
        return unknown
    held: Sequence[str] = next(
        (e.get("holds", unknown) for e in told["gpus"] if e["gpu"] == gpu), unknown
    )
    return held


def _require_terminal(yes: bool) -> None:
    if not yes and not sys.stdin.isatty():
        raise InputError("--yes: no terminal to confirm on; pass --yes")


def _confirm(words: str, yes: bool) -> None:
    if yes:
        return
    print(f"{words} Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        complain("nothing was done; it was not confirmed")
        raise typer.Exit(FAILED)
