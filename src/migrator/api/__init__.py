"""The Python interface: `migrator.plan`, `simulate`, `compare`, `serve` and `policy`.

Each does what the verb of the same name does, takes files or values, and returns a result that a
notebook can show. `serve` runs the live system in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast, overload

from migrator.api.results import Comparison, PlanResult, RunResult
from migrator.api.server import Server, serve
from migrator.core.comparison import summarise
from migrator.core.errors import InputError, PolicyError
from migrator.core.problem import Charge, Problem
from migrator.core.scenario import Scenario
from migrator.planning.problem_file import parse_problem, read_problem
from migrator.planning.solve import make_plan
from migrator.policies.policy import Policy, Sharing, Sight
from migrator.policies.registry import FunctionPolicy, PolicyFunction
from migrator.policies.registry import policy as policy_named
from migrator.simulation.compare import SimulationJob, run_all
from migrator.workload.file import parse_scenario, read_scenario

__all__ = [
    "Comparison",
    "PlanResult",
    "RunResult",
    "Server",
    "compare",
    "plan",
    "policy",
    "serve",
    "simulate",
]

ProblemSource = str | Path | Mapping[str, Any] | Problem
"""A problem file, its content, or a problem."""
ScenarioSource = str | Path | Mapping[str, Any] | Scenario
"""A scenario file, its content, or a scenario."""
PolicySource = str | Policy | PolicyFunction
"""A policy's name or import path, a policy, or a function."""
_COMPARED = ("migrator", "ekya", "astraea", "paris")


def plan(
    problem: ProblemSource,
    *,
    charge: str | None = None,
    solver: str = "exact",
    time_limit_s: float | None = None,
) -> PlanResult:
    """Plan a window: which instance serves or retrains which model in every slot.

    `charge`: cost model of reconfigurations, `paper` or `survivors`; default: the problem's.
    `time_limit_s`: default 1% of the window. The first use on a machine compiles the planner.
    """
    window = _problem(problem)
    if charge is not None:
        if charge not in list(Charge):
            raise InputError(f"charge: there is no {charge!r}; use {' or '.join(Charge)}")
        window = window.with_charge(Charge(charge))
    return PlanResult(window, make_plan(window, solver=solver, time_limit_s=time_limit_s))


def simulate(
    scenario: ScenarioSource,
    policy: PolicySource | None = None,
    *,
    windows: int | None = None,
    seed: int | None = None,
    forecaster: str | None = None,
    drawn: bool = False,
) -> RunResult:
    """Simulate a scenario request by request under one policy; default: the scenario's.

    `drawn`: draw at random whether each answer is correct, instead of counting the accuracy. An
    exception of your own policy is raised as it is.
    """
    job = SimulationJob(
        _source(scenario), _policy(policy), forecaster, seed, windows, drawn, record=True
    )
    try:
        return RunResult(job.run())
    except PolicyError as failed:
        raise _own_exception(failed) from None


def compare(
    scenarios: ScenarioSource | Sequence[ScenarioSource],
    policies: Sequence[PolicySource] = _COMPARED,
    *,
    seeds: int = 1,
    windows: int | None = None,
    forecaster: str | None = None,
    drawn: bool = False,
    processes: int = 1,
) -> Comparison:
    """Simulate scenarios under several policies and seeds and summarise the results.

    `processes`: runs in parallel; for functions defined in a notebook only 1.
    """
    sources = scenarios if isinstance(scenarios, list | tuple) else [scenarios]
    chosen = [_policy(policy) for policy in policies]
    if not sources or not chosen or seeds < 1:
        raise InputError("compare: give at least one scenario, one policy and one seed")
    names = [policy if isinstance(policy, str) else policy.name for policy in chosen if policy]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(
            f"compare: several policies are called {twice[0]}; name functions apart with "
            "@migrator.policy(name=...)"
        )
    if processes > 1 and not all(isinstance(policy_given, str) for policy_given in chosen):
        raise InputError(
            "processes: other processes find policies by name; name yours as package.module:NAME, "
            "or use processes=1"
        )
    jobs = [
        SimulationJob(source, name, forecaster, first + more, windows, drawn)
        for source in map(_source, sources)
        for first in [source(None, windows).seed]
        for name in chosen
        for more in range(seeds)
    ]
    try:
        outcomes = dict(run_all(jobs, processes))
    except PolicyError as failed:
        raise _own_exception(failed) from None
    runs = tuple(outcomes[place] for place in sorted(outcomes))
    return Comparison(summarise(runs), runs)


@overload
def policy(function: PolicyFunction, /) -> FunctionPolicy: ...
@overload
def policy(
    *,
    name: str | None = None,
    every_s: float | None = None,
    sight: str = "forecast",
    sharing: str = "MIG",
    on_completion: bool = True,
) -> Callable[[PolicyFunction], FunctionPolicy]: ...


def policy(
    function: PolicyFunction | None = None,
    /,
    *,
    name: str | None = None,
    every_s: float | None = None,
    sight: str = "forecast",
    sharing: str = "MIG",
    on_completion: bool = True,
) -> FunctionPolicy | Callable[[PolicyFunction], FunctionPolicy]:
    """Make a policy of a function; a decorator, with or without options.

    `name`: the function's by default. `every_s`: seconds between decisions within a window.
    `sight`: what it sees of future arrivals (`nothing`, `forecast` or, in simulations, `truth`).
    `sharing`: `MIG` or `MPS`. `on_completion`: whether to decide again when a retraining ends.
    """
    sights, sharings = [str(member) for member in Sight], [str(member) for member in Sharing]
    for option, value, names in (("sight", sight, sights), ("sharing", sharing, sharings)):
        if value not in names:
            raise InputError(f"{option}: there is no {value!r}; use {' or '.join(names)}")
    make = partial(
        FunctionPolicy,
        name=name,
        every_s=every_s,
        sight=Sight(sight),
        sharing=Sharing(sharing),
        on_completion=on_completion,
    )
    return make if function is None else make(function)


def _problem(given: ProblemSource) -> Problem:
    if isinstance(given, Problem):
        return given
    return (
        parse_problem(_with_text_keys(given))
        if isinstance(given, Mapping)
        else read_problem(Path(given))
    )


def _source(given: ScenarioSource) -> Callable[[int | None, int | None], Scenario]:
    """The scenario for a seed and a number of windows."""
    if isinstance(given, Scenario):
        return partial(_changed, given)
    if isinstance(given, Mapping):
        return partial(_parsed, _with_text_keys(given))
    return partial(read_scenario, Path(given))


def _with_text_keys(value: Any) -> Any:
    """Sizes such as 1 and 2 may be numbers in Python; files have text there."""
    if isinstance(value, Mapping):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list | tuple) else value


def _parsed(data: Any, seed: int | None, windows: int | None) -> Scenario:
    return parse_scenario(data, folder=Path(), name="scenario", seed=seed, windows=windows)


def _changed(given: Scenario, seed: int | None, windows: int | None) -> Scenario:
    return replace(
        given,
        seed=given.seed if seed is None else seed,
        windows=given.windows if windows is None else windows,
    )


def _policy(given: PolicySource | None) -> str | Policy | None:
    if given is None or isinstance(given, str):
        return None if given is None else policy_named(given).name
    if hasattr(given, "decide"):
        return cast("Policy", given)
    if not callable(given):
        raise InputError(
            f"policy: {given!r} is no policy; give a name, or a function of an observation"
        )
    return FunctionPolicy(given)


def _own_exception(failed: PolicyError) -> BaseException:
    """What the policy raised, with its own frames instead of ours."""
    return failed.__cause__ or failed
