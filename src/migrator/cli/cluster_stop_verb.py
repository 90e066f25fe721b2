"""The verb that ends a cluster which was left running: `migrator cluster stop`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from migrator.cli.cluster_verbs import group
from migrator.cli.printing import FAILED, complain
from migrator.core.errors import InputError


@group.command("stop")
def stop(
    address: Annotated[
        str, typer.Argument(help="Of the Ray cluster, `auto` for the one running here.")
    ] = "auto",
    scenario: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which cluster, where Ray serves several."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Drain every GPU of a cluster that `migrator serve --cluster` left running, and end it.

    Ray itself goes on; weights and labels stay in the shared store. It works without the head, too.

    Example:  migrator cluster stop auto --yes
    """
    from migrator.agents.ray_connection import begun, connected, the_only
    from migrator.agents.ray_stop import end_cluster

    if not yes and not sys.stdin.isatty():
        raise InputError("--yes: nobody can be asked here whether to do it; add --yes if so")
    with connected(address) as ray:
        name = the_only(begun(ray), scenario)
        if not yes and not _confirmed(name):
            complain("nothing was done; it was not confirmed")
            raise typer.Exit(FAILED)
        ending = end_cluster(ray, name)
    print(f"{name} is served no more: {ending.words}")


def _confirmed(name: str) -> bool:
    words = f"Requests of all tenants of {name} are answered, new ones refused from now on."
    print(f"{words} Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
