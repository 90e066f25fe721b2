"""The Python interface: `migrator.plan`, `simulate`, `compare`, `serve` and `policy`.

Each does what the verb of the same name does, takes files or values, and returns a result that a
notebook can show. `serve` runs the live system in a process of its own.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast, overload

from migrator.api.results import Comparison, PlanResult, RunResult
from migrator.core.comparison import summarise
from migrator.core.errors import InputError, MigratorError, PolicyError
from migrator.core.problem import Charge, Problem
from migrator.core.scenario import Scenario
from migrator.io.http_client import request
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
    given = scenarios if isinstance(scenarios, list | tuple) else [scenarios]
    chosen = [_policy(policy) for policy in policies]
    if not given or not chosen or seeds < 1:
        raise InputError("compare: give at least one scenario, one policy and one seed")
    if processes > 1 and not all(isinstance(each, str) for each in chosen):
        raise InputError(
            "processes: other processes find policies by name; name yours as package.module:NAME, "
            "or use processes=1"
        )
    jobs = [
        SimulationJob(source, name, forecaster, first + more, windows, drawn)
        for source in map(_source, given)
        for first in [source(None, windows).seed]
        for name in chosen
        for more in range(seeds)
    ]
    try:
        found = dict(run_all(jobs, processes))
    except PolicyError as failed:
        raise _own_exception(failed) from None
    runs = tuple(found[place] for place in sorted(found))
    return Comparison(summarise(runs), runs)


@overload
def policy(function: PolicyFunction, /) -> FunctionPolicy: ...
@overload
def policy(
    *,
    every_s: float | None = None,
    sight: str = "forecast",
    sharing: str = "MIG",
    on_completion: bool = True,
) -> Callable[[PolicyFunction], FunctionPolicy]: ...


def policy(
    function: PolicyFunction | None = None,
    /,
    *,
    every_s: float | None = None,
    sight: str = "forecast",
    sharing: str = "MIG",
    on_completion: bool = True,
) -> FunctionPolicy | Callable[[PolicyFunction], FunctionPolicy]:
    """Make a policy of a function; a decorator, with or without options.

    `every_s`: seconds between decisions within a window. `sight`: what it sees of future arrivals
    (`nothing`, `forecast` or, in simulations, `truth`). `sharing`: `MIG` or `MPS`.
    `on_completion`: whether to decide again when a retraining ends.
    """
    sights, sharings = [str(e) for e in Sight], [str(e) for e in Sharing]
    for option, value, known in (("sight", sight, sights), ("sharing", sharing, sharings)):
        if value not in known:
            raise InputError(f"{option}: there is no {value!r}; use {' or '.join(known)}")
    make = partial(
        FunctionPolicy,
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
        return {str(key): _with_text_keys(each) for key, each in value.items()}
    return [_with_text_keys(each) for each in value] if isinstance(value, list | tuple) else value


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


_LOOK_S = 0.05
_DRAIN_S = 120.0
_ANSWER_S = 30.0


class Server:
    """A running `migrator serve`. Leaving the `with` block drains and stops it."""

    def __init__(self, arguments: list[str], start_s: float, token: str | None) -> None:
        self._arguments, self._start_s, self._token = arguments, start_s, token
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.url = ""
        """Address of the API, while it serves."""
        self.grpc_address: str | None = None
        """Address of the API over gRPC; None without one."""

    def __enter__(self) -> Server:
        self._log = tempfile.NamedTemporaryFile(prefix="migrator-serve-", suffix=".log")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "migrator", "serve", *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C in a notebook is for its own process
        )
        try:
            self.url = self._wait_until_serving(self._process)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """What the process has logged so far."""
        return "" if self._log is None else Path(self._log.name).read_text("utf-8", "replace")

    def status(self) -> dict[str, Any]:
        """The tenants, their instances and counts, as `GET /admin/status` returns them."""
        return self.call("GET", "/admin/status")

    def infer(self, tenant: str, data: Any, *, request_id: str = "") -> dict[str, Any]:
        """Send one batch to a tenant's model; returns the answer.

        `data`: an array or nested lists, or texts for a model that reads them.
        """
        model = self.call("GET", f"/v2/models/{tenant}")
        values = data.tolist() if hasattr(data, "tolist") else data
        values = [values] if isinstance(values, str) else values
        shape, flat = _shape(values), _flat(values)
        entry = {**model["inputs"][0], "shape": shape, "data": flat}
        if flat and all(isinstance(value, str) for value in flat):
            entry["datatype"] = "BYTES"
        body = {"inputs": [entry], **({"id": request_id} if request_id else {})}
        return self.call("POST", f"/v2/models/{tenant}/infer", body)

    def feedback(self, tenant: str, request_id: str, label: int | str) -> dict[str, Any]:
        """Tell the true class of an earlier request, by its name or number, for the next
        retraining."""
        body = {"id": request_id, "label": label if isinstance(label, str) else int(label)}
        return self.call("POST", f"/v2/models/{tenant}/feedback", body)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A request to the API; MigratorError with its message if it is refused."""
        reply = request(self.url, method, path, timeout_s=_ANSWER_S, body=body, token=self._token)
        found = reply.json_object()
        if reply.status != 200 or found is None:
            why = (found or {}).get("error", f"status {reply.status}")
            raise MigratorError(f"{path}: {why}")
        return dict(found)

    def stop(self) -> None:
        """Drain, stop the process and wait for its end."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_DRAIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
        self._log, self.url = None, ""

    def _wait_until_serving(self, process: subprocess.Popen[bytes]) -> str:
        until_s = time.monotonic() + self._start_s
        while time.monotonic() < until_s:
            ended = process.poll() is not None  # before the log is read: its last line counts
            log = self.log
            match = re.search(r"^serving at (\S+)$", log, re.MULTILINE)
            if match:
                beside = re.search(r"^gRPC at (\S+)$", log, re.MULTILINE)
                self.grpc_address = beside[1] if beside else None
                return match[1]
            if ended:
                said = re.findall(r"^error: (.*)$", log, re.MULTILINE)
                why = said[-1] if said else log.strip()[-500:] or f"exit code {process.returncode}"
                raise (InputError if process.returncode == 2 else MigratorError)(why)
            time.sleep(_LOOK_S)
        last = self.log.strip()[-300:]
        raise MigratorError(f"serve: it did not serve within {self._start_s:g} s ({last})")

    def __repr__(self) -> str:
        return f"<Server at {self.url}>" if self.url else "<Server, not running>"


def serve(
    scenario: str | Path | None = None,
    *,
    model: str | None = None,
    data: str | Path | None = None,
    policy: str | None = None,
    driver: str = "emulated",
    gpu: int = 0,
    port: int = 0,
    state: str | Path | None = None,
    grpc_port: int | None = None,
    windows: int | None = None,
    start_s: float = 300.0,
    token: str | None = None,
) -> Server:
    """Serve and retrain the models of a live scenario; use it as `with migrator.serve(...) as s:`.

    `model`, `data`: one model and its labelled samples, in place of a scenario.

    `port`, `grpc_port`: 0 takes any free port; None is none. `policy`: name or import path.
    `start_s`: the longest time to wait for the models. `token`: the administration token, if the
    scenario asks for tokens.
    """
    options = {"--driver": driver, "--gpu": gpu, "--port": port}
    options |= {"--policy": policy, "--state": state, "--windows": windows}
    options |= {"--grpc-port": grpc_port, "--model": model, "--data": data}
    given = [f"{key}={value}" for key, value in options.items() if value is not None]
    return Server([*(() if scenario is None else (str(scenario),)), *given], start_s, token)


def _shape(values: Any) -> list[int]:
    return [len(values), *_shape(values[0])] if isinstance(values, list) and values else []


def _flat(values: Any) -> list[Any]:
    return [e for value in values for e in _flat(value)] if isinstance(values, list) else [values]
