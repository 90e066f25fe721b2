"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
ScenarioFile = Annotated[Path, typer.Argument(help="Scenario file, version 1 (YAML).")]
Forecaster = Annotated[
    str | None, typer.Option(metavar="NAME", help="Forecaster; default: the scenario's.")
]
Windows = Annotated[
    int | None, typer.Option(metavar="N", help="Number of windows; default: the scenario's.")
]
Drawn = Annotated[
    bool,
    typer.Option(
        "--drawn/--expected",
        help="Draw at random whether each answer is correct, or count the expected accuracy.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, max=1024, help="GPUs of a cluster run in parallel; default: one per core."
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Run on this Ray cluster (`auto`: the one running here); default: RAY_ADDRESS if ray "
        "is installed, otherwise local processes.",
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FOLDER",
        help="Where `migrator serve` keeps its records; default MIGRATOR_STATE or the user's.",
    ),
]
ScenarioName = Annotated[
    str | None,
    typer.Option("--scenario", metavar="NAME", help="Which one; default the one written last."),
]
Url = Annotated[
    str | None,
    typer.Option("--url", help="Address of the daemon; default: from its records."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the admin token; default: MIGRATOR_ADMIN_TOKEN.",
    ),
]
