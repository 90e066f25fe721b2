"""Verbs for files: `example` prints one, `validate` says what a file is and checks it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import AsJson, app, naming, print_json, require_known
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.workload.live import Live


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
        print(files("migrator.planning").joinpath("window.yaml").read_text("utf-8"), end="")
        return
    from migrator.workload.examples import example_text, live_text

    print(live_text(model, benchmark) if name == "live" else example_text(name), end="")


@app.command()
def validate(
    file: Annotated[Path, typer.Argument(help="Any file that a verb reads.")],
    as_json: AsJson = False,
) -> None:
    """Say what a file is, check it, and name the verb that uses it; exit code 2 if it is wrong.

    Example:  migrator example live > my.yaml  and  migrator validate my.yaml
    """
    from migrator.io.file_kind import SCENARIO, recognise

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
    checked = _CHECKS[kind.name](file) if kind.name in _CHECKS else _Checked()
    warnings = _scenario_warnings(file) if kind is SCENARIO else []
    details, use = checked.details, checked.use or kind.use.format(file=file)
    if as_json:
        description = {"file": str(file), "kind": kind.name, "details": details, "use": use}
        print_json(description | {"warnings": warnings})
        return
    print(f"{file} is {kind.name}{f': {details}' if details else ''}")
    for warning in warnings:
        print(f"warning: {warning}")
    print(use)


def _report_syntax(file: Path) -> None:
    """InputError with the line if a YAML or JSON file cannot be parsed."""
    from migrator.io.data_file import read_json_file, read_yaml_file

    if file.suffix in (".yaml", ".yml"):
        read_yaml_file(file, lambda data: data)
    elif file.suffix == ".json":
        read_json_file(file, lambda data: data)


@dataclass(frozen=True)
class _Checked:
    """What is worth saying of a file that is valid."""

    details: str = ""
    use: str | None = None
    """What to do with it; None: what is done with every file of its kind."""


def _problem(file: Path) -> _Checked:
    from migrator.planning.feasibility import require_feasible
    from migrator.planning.problem_file import read_problem

    problem = read_problem(file)
    require_feasible(problem)
    names = ", ".join(tenant.name for tenant in problem.tenants)
    return _Checked(
        f"{names} on {problem.board.name}, {problem.slots} slots, charge {problem.charge}"
    )


def _plan(file: Path) -> _Checked:
    from migrator.planning.plan_file import read_plan

    written = read_plan(file)
    return _Checked(
        f"goodput {written.goodput:,.1f} in {len(written.slots)} slots, {written.status}"
    )


def _scenario(file: Path) -> _Checked:
    from migrator.policies.registry import policy
    from migrator.workload.file import read_scenario
    from migrator.workload.live import has_live_keys, read_live

    scenario = read_scenario(file)
    require_known(file, policy=scenario.policy, forecaster=scenario.forecaster)
    names = ", ".join(tenant.name for tenant in scenario.tenants)
    windows = f"{scenario.windows} windows of {scenario.window_s:g} s"
    details = f"{names} on {scenario.board.name}, {windows} under {policy(scenario.policy).name}"
    try:
        live = read_live(file)
    except InputError as error:
        if has_live_keys(file):
            raise
        missing = str(error).partition(": ")[2]
        return _Checked(
            details,
            f"use `migrator simulate {file}`; to serve it as well, correct {missing}",
        )
    _check_files(file, live.live, [tenant.name for tenant in live.tenants])
    return _Checked(details)


def _check_files(file: Path, live: Live, tenants: list[str]) -> None:
    """Refuse tokens and certificates with which the API would not start."""
    from migrator.io.tls import ServerCertificate
    from migrator.workload.tokens import require_tokens

    with naming(file):
        require_tokens(live, tenants)
        if live.tls is not None:
            ServerCertificate(live.tls)


def _scenario_warnings(file: Path) -> list[str]:
    """What is valid and probably not meant."""
    from migrator.cli.serve_verbs import benchmark_warning
    from migrator.workload.drift_windows import missing_drift
    from migrator.workload.file import read_scenario
    from migrator.workload.live import read_live
    from migrator.workload.tokens import names_without_tenant

    warnings = [missing_drift(read_scenario(file))]
    live = None
    with suppress(InputError):  # it cannot be served, which its details say
        live = read_live(file)
    if live is not None:
        with naming(file):
            warnings.append(benchmark_warning(live))
            names = [tenant.name for tenant in live.tenants]
            warnings.append(names_without_tenant(live.live, names))
    return [warning for warning in warnings if warning]


def _cluster(file: Path) -> _Checked:
    from migrator.cluster.file import read_cluster
    from migrator.cluster.fleet.cluster_run import read_run
    from migrator.workload.live import has_live_keys

    scenario = read_cluster(file)
    require_known(file, policy=scenario.policy, forecaster=scenario.forecaster)
    details, use = f"{len(scenario.tenants)} tenants on {len(scenario.gpus)} GPUs", None
    if has_live_keys(file):
        use = f"use `migrator cluster plan {file}` or `migrator serve {file} --cluster auto`"
        run = read_run(file, driver="emulated", shared=None, state=file.parent, began_s=0.0)
        _check_files(file, run.live, [tenant.name for tenant in scenario.tenants])
    return _Checked(details, use)


def _layout(file: Path) -> _Checked:
    """The shape of the file; whether it fits depends on the GPU, which `gpu apply` knows."""
    from migrator.gpu.layout_file import describe_layout

    return _Checked(describe_layout(file))


def _profiles(file: Path) -> _Checked:
    from migrator.workload.profile_file import read_profiles

    names = [f"{profile.model} on {profile.board}" for profile in read_profiles(file)]
    return _Checked(", ".join(names))


def _placement(file: Path) -> _Checked:
    from migrator.cluster.file import read_current

    gpus = read_current(file)
    return _Checked(f"{len(gpus)} tenants on {len(set(gpus.values()))} GPUs")


def _records(file: Path) -> _Checked:
    from migrator.records.store import read_runs

    runs = read_runs(file)
    last = f", the last one {runs[-1].scenario} under {runs[-1].policy}" if runs else ""
    return _Checked(f"{len(runs)} runs{last}")


def _trace(file: Path) -> _Checked:
    from migrator.workload.traces.formats import load_trace

    trace = load_trace(file)
    return _Checked(
        f"{trace.seconds:,} seconds, {trace.mean_rps:.4g} requests per second on average"
    )


def _module(file: Path) -> _Checked:
    """The functions and classes, without running the module."""
    import ast

    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{file}: this is no valid Python ({error}); correct it") from error
    names = [
        statement.name
        for statement in tree.body
        if isinstance(statement, ast.FunctionDef | ast.ClassDef)
    ]
    return _Checked(", ".join(f"{file.stem}:{name}" for name in names if not name.startswith("_")))


_CHECKS: dict[str, Callable[[Path], _Checked]] = {
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
