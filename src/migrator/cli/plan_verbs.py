"""Verbs for files and for one window.

`example` prints a file, `validate` says what a file is and checks it, `plan` and `check` are for a
window, and `boards` lists GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from migrator.cli.app import FAILED, AsJson, app, compile_first, naming, print_json, require_known
from migrator.core import catalogue
from migrator.core.catalogue import Board
from migrator.core.errors import InfeasibleError, InputError
from migrator.core.problem import Charge, Plan, Problem


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
    checked = _CHECKS.get(kind.name, _nothing_to_check)(file)
    warnings = _scenario_warnings(file) if kind is SCENARIO else []
    details, use = checked.details, checked.use or kind.use.format(file=file)
    if as_json:
        found = {"file": str(file), "kind": kind.name, "details": details, "use": use}
        print_json(found | {"warnings": warnings})
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


def _nothing_to_check(_file: Path) -> _Checked:
    return _Checked()


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

    found = read_plan(file)
    return _Checked(f"goodput {found.goodput:,.1f} in {len(found.slots)} slots, {found.status}")


def _scenario(file: Path) -> _Checked:
    from migrator.policies.registry import policy
    from migrator.workload.file import read_scenario
    from migrator.workload.live import has_live_keys, read_live, require_tokens

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
    with naming(file):
        require_tokens(live.live, [tenant.name for tenant in live.tenants])
    return _Checked(details)


def _scenario_warnings(file: Path) -> list[str]:
    """What is valid and probably not meant."""
    from migrator.cli.serve_verbs import benchmark_warning
    from migrator.workload.drift_windows import missing_drift
    from migrator.workload.file import read_scenario
    from migrator.workload.live import read_live

    found = [missing_drift(read_scenario(file))]
    live = None
    with suppress(InputError):  # it cannot be served, which its details say
        live = read_live(file)
    if live is not None:
        with naming(file):
            found.append(benchmark_warning(live))
    return [words for words in found if words]


def _cluster(file: Path) -> _Checked:
    from migrator.cluster.file import read_cluster
    from migrator.cluster.fleet.cluster_run import read_run
    from migrator.workload.live import has_live_keys, require_tokens

    scenario = read_cluster(file)
    require_known(file, policy=scenario.policy, forecaster=scenario.forecaster)
    details, use = f"{len(scenario.tenants)} tenants on {len(scenario.gpus)} GPUs", None
    if has_live_keys(file):
        use = f"use `migrator cluster plan {file}` or `migrator serve {file} --cluster auto`"
        run = read_run(file, driver="emulated", shared=None, state=file.parent, began_s=0.0)
        with naming(file):
            require_tokens(run.live, [tenant.name for tenant in scenario.tenants])
    return _Checked(details, use)


def _layout(file: Path) -> _Checked:
    """The shape of the file; whether it fits depends on the GPU, which `gpu apply` knows."""
    from migrator.gpu.layout_file import describe_layout

    return _Checked(describe_layout(file))


def _profiles(file: Path) -> _Checked:
    from migrator.workload.measured import read_profiles

    found = [f"{profile.model} on {profile.board}" for profile in read_profiles(file)]
    return _Checked(", ".join(found))


def _placement(file: Path) -> _Checked:
    from migrator.cluster.placement.current_placement import read_current

    found = read_current(file)
    return _Checked(f"{len(found)} tenants on {len(set(found.values()))} GPUs")


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
    names = [e.name for e in tree.body if isinstance(e, ast.FunctionDef | ast.ClassDef)]
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


class Solver(StrEnum):
    """Planners by name."""

    EXACT = "exact"
    ILP = "ilp"


class IlpBackend(StrEnum):
    """MILP solvers by name."""

    HIGHS = "highs"
    GUROBI = "gurobi"


ChargeOption = Annotated[
    Charge | None, typer.Option(help="Cost model of reconfigurations; default: the problem's.")
]
ProblemFile = Annotated[Path, typer.Argument(help="Planning problem, version 1 (YAML or JSON).")]


@app.command()
def plan(
    problem: ProblemFile,
    solver: Annotated[Solver, typer.Option(help="Exact label search, or the paper's ILP.")] = (
        Solver.EXACT
    ),
    backend: Annotated[IlpBackend, typer.Option(help="Solver of the ILP.")] = IlpBackend.HIGHS,
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Time limit; default: 1% of the window."),
    ] = None,
    charge: ChargeOption = None,
    warm_start: Annotated[
        bool, typer.Option("--warm-start", help="Start the ILP from the exact planner's plan.")
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the plan as FILE.html or FILE.png."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan a window: which instance on which slices serves or retrains which model per slot."""
    from migrator.planning.feasibility import require_feasible
    from migrator.planning.problem_file import read_problem
    from migrator.planning.solve import make_plan, require_time_limit

    require_time_limit(time_limit)
    if figure is not None:
        from migrator.report.html_page import check_figure_path

        check_figure_path(figure)
    window = read_problem(problem)
    if charge is not None:
        window = window.with_charge(charge)
    try:
        require_feasible(window)
        if solver is Solver.EXACT or warm_start:
            compile_first(window.charge)
        made = make_plan(
            window, solver=solver, backend=backend, time_limit_s=time_limit, warm_start=warm_start
        )
    except InfeasibleError as error:
        if as_json:
            print_json({"status": f"infeasible: {error}"})
        raise
    if figure is not None:
        from migrator.report.plan_figure import draw_plan

        draw_plan(window, made, figure)
    if as_json:
        print_json(_plan_json(window, made))
    else:
        _print_plan(window, made)
        if figure is not None:
            print(f"figure       {figure}")


@app.command()
def check(
    problem: ProblemFile,
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan of that problem (JSON).")],
    charge: ChargeOption = None,
    search: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Also search this long for a plan above the claimed bound."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a plan against every rule of its problem; the exit code is 1 if it breaks one.

    Its goodput is computed again; upper bound, gap and status must agree with it. Whether the
    bound holds for all plans cannot be checked, but --search may find a plan that exceeds it.
    """
    from migrator.io.file_kind import PLAN, PROBLEM, recognise
    from migrator.planning.check import goodput_of, later_goodput_of, violations
    from migrator.planning.plan_file import read_claims, read_plan
    from migrator.planning.problem_file import read_problem
    from migrator.planning.solve import require_time_limit

    require_time_limit(search, "--search")
    if (recognise(problem), recognise(plan_file)) == (PLAN, PROBLEM):
        raise InputError(
            f"{problem}, {plan_file}: the two files are swapped; use `migrator check {plan_file} "
            f"{problem}`"
        )
    window, made = read_problem(problem), read_plan(plan_file)
    if charge is not None:
        window = window.with_charge(charge)
    broken = violations(window, made, read_claims(plan_file))
    if search is not None:
        broken += _exceeded(window, made, search)
    goodput = None if broken else goodput_of(window, made)
    later = 0.0 if broken else later_goodput_of(window, made)
    if as_json:
        print_json({"valid": not broken, "goodput": goodput, "violations": broken})
    elif broken:
        print("\n".join(broken))
    else:
        after = f", and {later:,.1f} in later windows" if later else ""
        print(f"The plan keeps every rule; its goodput is {goodput:,.1f}{after}.")
    if broken:
        raise typer.Exit(FAILED)


def _exceeded(window: Problem, made: Plan, search_s: float) -> list[str]:
    """What the planner finds above the plan's bound within `search_s` seconds."""
    from migrator.planning.check import TOLERANCE
    from migrator.planning.feasibility import require_feasible
    from migrator.planning.solve import make_plan

    require_feasible(window)
    compile_first(window.charge)
    best = make_plan(window, time_limit_s=search_s)
    if best.objective <= made.upper_bound + TOLERANCE * max(1.0, abs(made.upper_bound)):
        return []
    return [
        f"the plan claims upper_bound {made.upper_bound!r}, but a plan of {best.objective!r} exists"
    ]


@app.command()
def boards(
    name: Annotated[str | None, typer.Argument(help="Show this board in detail.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the known GPU boards; with a name, its profiles and configurations."""
    chosen = list(catalogue.boards().values()) if name is None else [catalogue.board(name)]
    if as_json:
        print_json([_board_json(board) for board in chosen])
    elif name:
        _print_board(chosen[0])
    else:
        for board in chosen:
            print(_board_line(board))


def _plan_json(problem: Problem, made: Plan) -> dict[str, object]:
    from migrator.control.rehearsal import predicted_goodput
    from migrator.planning.plan_file import plan_to_json

    answer = {
        **plan_to_json(made),
        "charge": str(problem.charge),
        "predicted_goodput": predicted_goodput(problem, made),
    }
    if problem.charge is Charge.PAPER:
        from migrator.planning.preinitialization import preinitialize

        preinitialization = preinitialize(problem, made)
        answer["preinitialization"] = {
            "overhead_s": preinitialization.overhead_s,
            "hidden_s": preinitialization.hidden_s,
            "hidden_share": preinitialization.hidden_share,
            "releases": preinitialization.releases,
            "goodput_regained": preinitialization.goodput_regained,
            "preparations": [vars(preparation) for preparation in preinitialization.preparations],
        }
    return answer


def _print_plan(problem: Problem, made: Plan) -> None:
    from migrator.control.rehearsal import predicted_goodput
    from migrator.report.plan_figure import plan_summary, plan_timeline

    print("\n".join(plan_summary(problem, made, predicted_goodput(problem, made))))
    if problem.charge is Charge.PAPER:
        from migrator.planning.preinitialization import preinitialize

        early = preinitialize(problem, made)
        print(
            f"prepared     {early.hidden_s:.1f} of {early.overhead_s:.1f} s overhead of "
            f"{len(early.preparations)} new instances hidden by pre-initialization, "
            f"goodput +{early.goodput_regained:,.1f}"
        )
    print(f"\n{plan_timeline(problem, made)}")


def _board_line(each: Board) -> str:
    return (
        f"{each.name:<28} {each.compute_slices} GPCs, {each.memory_slices} memory slices, "
        f"{len(catalogue.placement_sets(each))} placement sets, "
        f"{len(catalogue.configurations(each))} configurations"
    )


def _print_board(each: Board) -> None:
    print(_board_line(each))
    plain = {profile.name for profile in each.plain_profiles.values()}
    print(f"\n{'profile':<18}{'GPCs':>5}{'slices':>8}{'SMs':>6}{'GiB':>8}  starts")
    for profile in each.profiles:
        sms, gib = profile.sms or "?", profile.memory_gib or "?"
        mark = "" if profile.name in plain else "  (not used by plans)"
        starts = ",".join(map(str, profile.starts))
        print(
            f"{profile.name:<18}{profile.gpcs:>5}{profile.memory_slices:>8}{sms:>6}{gib:>8}"
            f"  {starts}{mark}"
        )
    print(
        "\nconfigurations  "
        + "  ".join("-".join(map(str, c)) for c in catalogue.configurations(each))
    )


def _board_json(each: Board) -> dict[str, object]:
    from dataclasses import asdict

    return {
        **asdict(each),
        "sizes": each.sizes,
        "placement_sets": len(catalogue.placement_sets(each)),
        "maximal_placement_sets": len(catalogue.maximal_placement_sets(each)),
        "multisets": catalogue.multisets(each),
        "configurations": catalogue.configurations(each),
    }
