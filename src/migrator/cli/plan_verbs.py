"""Verbs for one window: `plan` and `check`; `boards` lists GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from migrator.cli.app import FAILED, AsJson, Figure, app, print_json
from migrator.core import catalogue
from migrator.core.catalogue import Board
from migrator.core.errors import InfeasibleError, InputError
from migrator.core.problem import Charge, Plan, Problem
from migrator.io.strict import listed

ChargeOption = Annotated[
    Charge | None, typer.Option(help="Cost model of reconfigurations; default: the problem's.")
]
ProblemFile = Annotated[Path, typer.Argument(help="Planning problem, version 1 (YAML or JSON).")]


@app.command()
def plan(
    problem: ProblemFile,
    solver: Annotated[
        str, typer.Option(metavar="exact|ilp", help="Exact label search, or the paper's ILP.")
    ] = "exact",
    backend: Annotated[
        str, typer.Option(metavar="highs|gurobi", help="Solver of the ILP.")
    ] = "highs",
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Time limit; default: 1% of the window."),
    ] = None,
    charge: ChargeOption = None,
    warm_start: Annotated[
        bool, typer.Option("--warm-start", help="Start the ILP from the exact planner's plan.")
    ] = False,
    figure: Figure = None,
    as_json: AsJson = False,
) -> None:
    """Plan a window: which instance on which slices serves or retrains which model per slot."""
    from migrator.planning.feasibility import require_feasible
    from migrator.planning.planners import ready
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
        if solver == "exact" or warm_start:
            ready(window.charge)
        planned = make_plan(
            window, solver=solver, backend=backend, time_limit_s=time_limit, warm_start=warm_start
        )
    except InfeasibleError as error:
        if as_json:
            print_json({"status": f"infeasible: {error}"})
        raise
    if figure is not None:
        from migrator.report.plan_figure import draw_plan

        draw_plan(window, planned, figure)
    if as_json:
        print_json(_plan_json(window, planned))
    else:
        _print_plan(window, planned)
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
    bound holds for all plans cannot be checked, but --search may find a plan that exceeds it. If
    the plan is short of a floor, a plan that is less short is searched in any case.
    """
    from migrator.io.file_kind import PLAN, PROBLEM, recognise
    from migrator.planning.check import TOLERANCE, requests_short, valued, violations
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
    counted = {} if broken else requests_short(window, made)
    short = {name: requests for name, requests in counted.items() if requests > TOLERANCE}
    if search is not None or short:
        broken += _better(window, made, search)
    worth = None if broken else valued(window, made)
    if as_json:
        goodput = None if worth is None else worth.goodput
        answer = {"valid": not broken, "goodput": goodput, "violations": broken}
        print_json(answer | ({"requests_short": short} if short else {}))
    elif worth is None:
        print("\n".join(broken))
    else:
        after = f", and {worth.later_goodput:,.1f} in later windows" if worth.later_goodput else ""
        print(f"The plan keeps every rule; its goodput is {worth.goodput:,.1f}{after}.")
        for name, requests in short.items():
            floor = f"{name} is {requests:,.1f} requests short of its floor"
            print(f"{floor}; no plan that was found is less short.")
    if broken:
        raise typer.Exit(FAILED)


def _better(window: Problem, made: Plan, search_s: float | None) -> list[str]:
    """What the planner finds within `search_s` seconds, by default the usual limit: a plan above
    this one's bound, or one that is less short of floors and better."""
    from migrator.planning.check import TOLERANCE, requests_short
    from migrator.planning.feasibility import require_feasible
    from migrator.planning.planners import ready
    from migrator.planning.solve import make_plan

    require_feasible(window)
    ready(window.charge)
    best = make_plan(window, time_limit_s=search_s)
    better = []
    # relative to what is earned: a penalty may be far larger
    if best.objective > made.upper_bound + TOLERANCE * max(1.0, best.objective + best.penalty):
        better.append(
            f"the plan claims upper_bound {made.upper_bound!r}, but a plan of {best.objective!r} "
            "exists"
        )
    short, least = sum(requests_short(window, made).values()), requests_short(window, best)
    if best.objective > made.objective and sum(least.values()) < short - TOLERANCE:
        names = listed([repr(name) for name in least], last="and")
        better.append(
            f"the plan is {short:,.1f} requests short of the floors of {names}, but a plan that is "
            f"{sum(least.values()):,.1f} short exists"
        )
    return better


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
    from migrator.planning.check import requests_short
    from migrator.planning.plan_file import plan_to_json

    answer = {
        **plan_to_json(made),
        "charge": str(problem.charge),
        "predicted_goodput": predicted_goodput(problem, made),
    }
    if any(tenant.floor > 0 for tenant in problem.tenants):
        answer["requests_short"] = requests_short(problem, made)
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
    from migrator.planning.check import requests_short
    from migrator.report.plan_text import plan_summary, plan_timeline

    short = requests_short(problem, made)
    print("\n".join(plan_summary(problem, made, predicted_goodput(problem, made), short)))
    if problem.charge is Charge.PAPER:
        from migrator.planning.preinitialization import preinitialize

        early = preinitialize(problem, made)
        print(
            f"prepared     {early.hidden_s:.1f} of {early.overhead_s:.1f} s overhead of "
            f"{len(early.preparations)} new instances hidden by pre-initialization, "
            f"goodput +{early.goodput_regained:,.1f}"
        )
    print(f"\n{plan_timeline(problem, made)}")


def _board_line(board: Board) -> str:
    return (
        f"{board.name:<28} {board.compute_slices} GPCs, {board.memory_slices} memory slices, "
        f"{len(catalogue.placement_sets(board))} placement sets, "
        f"{len(catalogue.configurations(board))} configurations"
    )


def _print_board(board: Board) -> None:
    print(_board_line(board))
    plain = {profile.name for profile in board.plain_profiles.values()}
    print(f"\n{'profile':<18}{'GPCs':>5}{'slices':>8}{'SMs':>6}{'GiB':>8}  starts")
    for profile in board.profiles:
        sms, gib = profile.sms or "?", profile.memory_gib or "?"
        mark = "" if profile.name in plain else "  (not used by plans)"
        starts = ",".join(map(str, profile.starts))
        print(
            f"{profile.name:<18}{profile.gpcs:>5}{profile.memory_slices:>8}{sms:>6}{gib:>8}"
            f"  {starts}{mark}"
        )
    print(
        "\nconfigurations  "
        + "  ".join("-".join(map(str, c)) for c in catalogue.configurations(board))
    )


def _board_json(board: Board) -> dict[str, object]:
    from dataclasses import asdict

    return {
        **asdict(board),
        "sizes": board.sizes,
        "placement_sets": len(catalogue.placement_sets(board)),
        "maximal_placement_sets": len(catalogue.maximal_placement_sets(board)),
        "multisets": catalogue.multisets(board),
        "configurations": catalogue.configurations(board),
    }
