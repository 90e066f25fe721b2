"""Verbs about files: `example` prints one, `validate` says what one is and checks it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from migrator.cli.app import AsJson, app, print_json
from migrator.core.errors import InputError


@app.command()
def example(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[window|quickstart|live|cluster|layout|policy|model|W1...W16|P1]",
            help="A problem for `plan`, a scenario for `simulate`, `serve` (live) or `cluster`, a "
            "layout for `gpu apply`, or a Python file with a policy or a model.",
        ),
    ] = "window",
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With live: your model, such as hf:my-model."),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With live: your samples, such as folder:my-pictures."),
    ] = None,
) -> None:
    """Print a file that works as printed; its comments say how to use it.

    Your own model:  migrator example live --model hf:my-model --benchmark folder:my-pictures
    """
    if name != "live" and (model or benchmark):
        raise InputError("--model, --benchmark: only for `migrator example live`; leave them out")
    if name == "window":
        from migrator.plan.example import example_text as window_text

        print(window_text(), end="")
        return
    from migrator.workload.workloads import example_text, live_text

    print(live_text(model, benchmark) if name == "live" else example_text(name), end="")


@app.command()
def validate(
    file: Annotated[Path, typer.Argument(help="Any file that a verb reads.")],
    as_json: AsJson = False,
) -> None:
    """Say what a file is, check it, and name the verb that uses it; exit code 2 if it is wrong.

    Example:  migrator example live > my.yaml  and  migrator validate my.yaml
    """
    from migrator.io.data_file import recognise

    if not file.exists():
        raise InputError(f"{file}: there is no such file; check the path")
    if file.is_dir():
        raise InputError(f"{file}: this is a folder; name a file in it")
    kind = recognise(file)
    if kind is None:
        _report_syntax(file)
        raise InputError(
            f"{file}: this is no file that MIGRator reads; `migrator example` prints one of each "
            "kind"
        )
    details = _DETAILS.get(kind.words, _no_details)(file)
    use = kind.use.format(file=file)
    if as_json:
        print_json({"file": str(file), "kind": kind.words, "details": details, "use": use})
        return
    print(f"{file} is {kind.words}{f': {details}' if details else ''}")
    print(use)


def _report_syntax(file: Path) -> None:
    """InputError with the line if a YAML or JSON file cannot be parsed."""
    import json

    import yaml

    if file.suffix not in (".yaml", ".yml", ".json"):
        return
    try:
        text = file.read_text(encoding="utf-8")
        json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        words = " ".join(str(error).split())[:300]
        raise InputError(f"{file}: not valid YAML or JSON ({words}); correct it") from error


def _no_details(_file: Path) -> str:
    return ""


def _problem(file: Path) -> str:
    from migrator.plan.problem_file import read_problem
    from migrator.plan.solve import require_feasible

    found = read_problem(file)
    require_feasible(found)
    names = ", ".join(each.name for each in found.tenants)
    return f"{names} on {found.board.name}, {found.slots} slots, charge {found.charge}"


def _plan(file: Path) -> str:
    from migrator.plan.plan_file import read_plan

    found = read_plan(file)
    return f"goodput {found.goodput:,.1f} in {len(found.slots)} slots, {found.status}"


def _scenario(file: Path) -> str:
    from migrator.forecast.selection import forecaster
    from migrator.policies.registry import policy
    from migrator.workload.file import read_scenario
    from migrator.workload.live import read_live

    found = read_scenario(file)
    chosen = policy(found.policy)
    forecaster(found.forecaster)
    try:
        read_live(file)
        served = ""
    except InputError as error:
        served = f"; to be served it lacks something ({str(error).partition(': ')[2]})"
    names = ", ".join(each.name for each in found.tenants)
    windows = f"{found.windows} windows of {found.window_s:g} s under {chosen.name}"
    return f"{names} on {found.board.name}, {windows}{served}"


def _cluster(file: Path) -> str:
    from migrator.policies.registry import policy
    from migrator.workload.cluster import read_cluster

    found = read_cluster(file)
    policy(found.policy)
    return f"{len(found.tenants)} tenants on {len(found.gpus)} GPUs"


def _layout(file: Path) -> str:
    """The shape of the file; whether it fits depends on the GPU, which `gpu apply` knows."""
    from migrator.gpu.layout_file import describe_layout

    return describe_layout(file)


def _profiles(file: Path) -> str:
    from migrator.workload.profile_file import read_profiles

    found = [f"{each.model} on {each.board}" for each in read_profiles(file)]
    return ", ".join(found)


def _placement(file: Path) -> str:
    from migrator.cluster.placement.place import read_current

    found = read_current(file)
    return f"{len(found)} tenants on {len(set(found.values()))} GPUs"


def _records(file: Path) -> str:
    from migrator.records.store import read_runs

    runs = read_runs(file)
    last = f", the last one {runs[-1].scenario} under {runs[-1].policy}" if runs else ""
    return f"{len(runs)} runs{last}"


def _trace(file: Path) -> str:
    from migrator.workload.traces.formats import load_trace

    found = load_trace(file)
    return f"{found.seconds:,} seconds, {found.mean_rps:.4g} requests per second on average"


def _module(file: Path) -> str:
    """The functions and classes, without running the module."""
    import ast

    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{file}: this is no valid Python ({error}); correct it") from error
    names = [e.name for e in tree.body if isinstance(e, ast.FunctionDef | ast.ClassDef)]
    return ", ".join(f"{file.stem}:{each}" for each in names if not each.startswith("_"))


_DETAILS: dict[str, Callable[[Path], str]] = {
    "a planning problem": _problem,
    "a plan": _plan,
    "a scenario": _scenario,
    "a cluster scenario": _cluster,
    "a layout of a GPU": _layout,
    "a profile file": _profiles,
    "a placement": _placement,
    "the records of a run": _records,
    "a trace of requests": _trace,
    "a Python module": _module,
}
"""Words of a kind -> its own reader, which raises InputError, and what is worth saying."""
