"""The verb that prints something to start from."""

from __future__ import annotations

from typing import Annotated

import typer

from migrator.cli.app import app
from migrator.cli.printing import print_json
from migrator.core.errors import InputError

_WINDOW, _QUICKSTART = "window", "quickstart"


@app.command()
def example(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[window|quickstart|W1...W16]",
            help="A planning problem for `plan`, or a scenario for `simulate`.",
        ),
    ] = _WINDOW,
) -> None:
    """Print an example: a window to plan, a scenario that explains itself, a workload."""
    if name == _WINDOW:
        from migrator.plan.example import example_problem

        print_json(example_problem())
        return
    from migrator.workload.workloads import quickstart_yaml, workload_yaml, workloads

    if name == _QUICKSTART:
        print(quickstart_yaml(), end="")
    elif name.upper() in workloads():
        print(workload_yaml(name.upper()), end="")
    else:
        raise InputError(f"example: there is no {name[:100]!r}; use window, quickstart, W1 to W16")
