"""The forecasters under docs/evaluation-protocol.md: errors of forecasts, goodput in the loop.

    MIGRATOR_DATA=FOLDER python -m benchmarks.forecasters --keep FOLDER [--processes N]

It trains an Informer on a week of generated arrivals of every kind, so that no place of a real
trace was seen. Then every forecaster forecasts each window of the protocol's runs at load 0.8, and
`migrator` plans on it, and `migrator-once`, which does not plan again on the last seconds within
the window; `truth` is a forecast that is right. Runs go seed by seed, workload by
workload, so that an interrupted call has whole workloads; the same call goes on. `--device cuda
--width 512 --heads 8 --steps 10000` trains the network of the Informer's authors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks import headline_scenarios
from benchmarks.configurations import commit
from benchmarks.forecasters_page import PLANNERS, TRUTH, Json, page
from benchmarks.headline_scenarios import (
    KINDS,
    SPREAD_S,
    WINDOWS,
    Condition,
    Run,
    place_of,
    scenario_of,
)
from benchmarks.machine import describe_machine
from benchmarks.results_file import Key, code_digest, open_results, traces_digest
from migrator.core.errors import InputError
from migrator.core.scenario import Scenario
from migrator.forecast.evaluation import measure, origins_of
from migrator.forecast.forecaster import Forecaster
from migrator.forecast.selection import forecaster
from migrator.io.task_pool import open_workers
from migrator.policies.registry import policy
from migrator.simulation import tenant
from migrator.simulation.compare import prepare
from migrator.simulation.run import run
from migrator.workload.traces.generator import KINDS as KIND_OF
from migrator.workload.traces.generator import VARIABLE, generate
from migrator.workload.workloads import WINDOW_S, all_workloads

Floats = NDArray[np.float64]
PATHS = {"auto-ets": "migrator.forecast.auto_ets:AutoEts", "informer": "informer:{model}"}
FORECASTERS = ("last-mean", "long-mean", "seasonal", "ridge", "auto", *PATHS)
"""The simplest first."""
SEEDS, WIDTH, HEADS, STEPS = 1, 32, 4, 800
"""Defaults: what two cores do in half an hour."""
WEEK_S = 7 * 24 * 3600
WEEK_SEED = 1000
WEEK_RPS = 2000.0
"""About the rates of the runs; late copies are added up for it, as for those."""


@dataclass(frozen=True)
class Case:
    """A run of the protocol with a forecaster."""

    workload: str
    seed: int
    forecaster: str

    def key(self, model: str) -> Key:
        """Its name among finished ones; `model`: a digest of the Informer."""
        trained = f" {model}" if self.forecaster == "informer" else ""
        return f"{self.workload}, {self.forecaster}{trained}", self.seed

    @property
    def of_protocol(self) -> Run:
        """The run of the protocol."""
        return Run(self.workload, Condition(), "migrator", self.seed)

    def made(self, scenario: Scenario, model: Path) -> Forecaster:
        """The forecaster."""
        if self.forecaster == TRUTH:
            return _Truth([tenant.trace.counts.astype(float) for tenant in scenario.tenants])
        return _named(PATHS.get(self.forecaster, self.forecaster).format(model=model))

    def errors(self, data: Path, model: Path) -> Errors:
        """What it forecast of every window, and what came."""
        scenario = scenario_of(self.of_protocol, data)
        method, slots = self.made(scenario, model), round(scenario.window_s)
        tenants = []
        for number, served in enumerate(scenario.tenants):
            end = served.offset_s + WINDOWS * slots
            counts = served.trace.counts[:end].astype(float)
            figures = measure(method, counts, origins_of(served.offset_s, end, slots), slots)
            kind, begin_s = place_of(self.of_protocol, number, data)
            kept = {name: round(value, 4) for name, value in asdict(figures).items()}
            tenants.append({"kind": kind, "begin_s": begin_s, **kept})
        return Errors(tuple(tenants))

    def goodput(self, data: Path, model: Path, planner: str) -> Goodput:
        """What a policy brings with it."""
        began_s, scenario = time.process_time(), scenario_of(self.of_protocol, data)
        method, ours = self.made(scenario, model), policy(planner)
        prepare(ours)
        outcome = run(scenario, ours, method)
        return Goodput(
            received=outcome.tally.received,
            goodput=round(outcome.tally.goodput, 2),
            in_time=round(outcome.tally.goodput + outcome.tally.wrong, 2),
            worst=round(outcome.fairness.worst_share, 4),
            cpu_s=round(time.process_time() - began_s, 2),
        )


@dataclass(frozen=True)
class Errors:
    """Of a run's tenants."""

    tenants: tuple[dict[str, str | float], ...]


@dataclass(frozen=True)
class Goodput:
    """Of a run in the loop."""

    received: int
    goodput: float
    in_time: float
    worst: float
    cpu_s: float


class _Truth:
    """Forecasts what will come."""

    name, summary = TRUTH, "what will come"

    def __init__(self, counts: Sequence[Floats]) -> None:
        self._counts = counts

    def ahead(self, history: Floats, slots: int, _window_slots: int) -> Floats:
        """The next slots of the trace that begins with this history."""
        now = len(history)
        return next(
            counts[None, now : now + slots]
            for counts in self._counts
            if np.array_equal(counts[:now], history)
        )


@cache
def _named(name: str) -> Forecaster:
    """A forecaster, once per process, as it may keep what it computed."""
    return forecaster(name)


def train(model: Path, asked: argparse.Namespace) -> Json:
    """Train the Informer if that was not done; how that went."""
    from migrator.forecast.informer.network import Shape
    from migrator.forecast.informer.trained import save
    from migrator.forecast.informer.training import Settings
    from migrator.forecast.informer.training import train as trained

    about = model.with_suffix(".json")
    if not (model.exists() and about.exists()):
        settings = Settings(steps=asked.steps, device=asked.device)
        shape = replace(Shape.for_window(WINDOW_S), width=asked.width, heads=asked.heads)
        began_s, cpu_s = time.monotonic(), time.process_time()
        week = [_week(kind) for kinds in KINDS for kind in kinds]
        result = trained(week, 1.0, shape, settings, _counted(settings.steps))
        spent = {"s": time.monotonic() - began_s, "cpu_s": time.process_time() - cpu_s}
        said = {"shape": asdict(shape), "settings": asdict(settings), "rps": WEEK_RPS}
        save(result, model)
        about.write_text(json.dumps({**said, "summary": asdict(result.summary), **spent}))
    read: Json = json.loads(about.read_text(encoding="utf-8"))
    return read


def _week(kind: str) -> Floats:
    """A week of a kind's arrivals at the rate of the runs, scaled as theirs."""
    native_rps = KIND_OF[kind].measured.mean_rps
    native = generate(kind, mean_rps=native_rps, seconds=WEEK_S, seed=WEEK_SEED)
    return native.superposed(WEEK_RPS / native_rps, SPREAD_S, WEEK_SEED).counts.astype(float)


def _counted(steps: int) -> Callable[[], None]:
    numbers = iter(range(1, steps + 1))
    return lambda: print(f"\rtraining: {next(numbers)} of {steps}", end="", file=sys.stderr)


def cases(asked: argparse.Namespace, names: Sequence[str], seeds: int) -> list[Case]:
    """The runs, in order."""
    workloads = list(all_workloads())[: asked.workloads]
    chosen = [name for name in names if not asked.forecasters or name in asked.forecasters]
    return [
        Case(workload, seed, name)
        for seed in range(seeds)
        for workload in workloads
        for name in chosen
    ]


_Result = TypeVar("_Result", Errors, Goodput)


def finish(
    kind: str,
    result: type[_Result],
    wanted: Sequence[Case],
    work: Callable[[Case], _Result],
    asked: argparse.Namespace,
    made_with: Json,
    data: Path,
) -> list[Json]:
    """Run what is missing; the rows of what is finished."""
    path, model = asked.keep / f"{kind}.jsonl", made_with["model"]
    settings = {name: value for name, value in made_with.items() if name != "model"}
    with open_results(path, kind, result, settings, to_read=asked.rows) as file:
        made_with.update(file.settings)  # rows that are only read may be of other code
        left = [case for case in wanted if case.key(model) not in file.finished]
        if left and not asked.rows:
            tenant.ready()
            with open_workers(asked.processes) as workers:
                for done, (place, one) in enumerate(workers.as_completed(work, left), 1):
                    file.add(left[place].key(model), one)
                    print(f"\r{kind}: {done} of {len(left)}", end="", file=sys.stderr)
            print(file=sys.stderr)
        return [
            {
                **asdict(case),
                "place": " ".join(map(str, place_of(case.of_protocol, 1, data))),
                **asdict(file.finished[case.key(model)]),
            }
            for case in wanted
            if case.key(model) in file.finished
        ]


def record(asked: argparse.Namespace, data: Path) -> Json:
    """Train, forecast, plan; what was measured."""
    model = asked.keep / "week.informer"
    training = train(model, asked)
    made_with = {
        "code": code_digest(),
        "runs": hashlib.sha256(Path(headline_scenarios.__file__).read_bytes()).hexdigest()[:16],
        "traces": traces_digest(data),
        "model": hashlib.sha256(model.read_bytes()).hexdigest()[:16],
    }
    everything = cases(asked, (*FORECASTERS, TRUTH), asked.seeds)
    loops = {}
    for planner, kind in PLANNERS.items():
        goodput = partial(Case.goodput, data=data, model=model, planner=planner)
        loops[kind] = finish(kind, Goodput, everything, goodput, asked, made_with, data)
    errors = partial(Case.errors, data=data, model=model)
    forecast = cases(asked, FORECASTERS, asked.error_seeds)
    error_rows = finish("errors", Errors, forecast, errors, asked, made_with, data)
    options = {"workloads": None, "seeds": SEEDS, "error_seeds": SEEDS, "device": "cpu"}
    options |= {"width": WIDTH, "heads": HEADS, "steps": STEPS}
    words = "".join(
        f" --{name.replace('_', '-')} {getattr(asked, name)}"
        for name, default in options.items()
        if getattr(asked, name) != default
    )
    return {
        "command": f"{VARIABLE}=FOLDER python -m benchmarks.forecasters{words} --keep FOLDER",
        "commit": commit(),
        **made_with,
        "windows": WINDOWS,
        "machine": describe_machine(),
        "training": training,
        "wanted": {"errors": len(forecast), **dict.fromkeys(PLANNERS.values(), len(everything))},
        "errors": error_rows,
        **loops,
    }


def _text(made: Json) -> str:
    """The record as JSON, a line per row."""
    lists = ("errors", *PLANNERS.values())
    about = json.dumps({name: value for name, value in made.items() if name not in lists}, indent=1)
    rows = "".join(
        f',\n "{name}": [\n  ' + ",\n  ".join(map(json.dumps, made[name])) + "\n ]"
        for name in lists
    )
    return about.removesuffix("\n}") + rows + "\n}\n"


def main() -> int:
    """Measure, and write rows and page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--keep", type=Path, default=Path("out/forecasters"), help="finished runs, to continue")
    add("--processes", type=int, help="runs in parallel; default: one per core")
    add("--workloads", type=int, help="this many, in the order of the protocol; default: all")
    add("--seeds", type=int, default=SEEDS, help=f"of runs in the loop; default: {SEEDS}")
    add("--error-seeds", type=int, default=SEEDS, help=f"of errors; default: {SEEDS}")
    add("--forecasters", nargs="+", metavar="NAME", help="these only")
    add("--device", default="cpu", help="to train on: cpu or cuda")
    add("--width", type=int, default=WIDTH, help="of the Informer")
    add("--heads", type=int, default=HEADS)
    add("--steps", type=int, default=STEPS, help="of its training")
    add("--rows", action="store_true", help="run nothing: write rows and page of what is finished")
    add("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    folder = os.environ.get(VARIABLE)
    if not folder:
        print(f"error: {VARIABLE} names no folder of real traces", file=sys.stderr)
        return 2
    asked.keep.mkdir(parents=True, exist_ok=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    try:
        made = record(asked, Path(folder))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    (asked.out / "forecasters.json").write_text(_text(made), encoding="utf-8")
    (asked.out / "forecasters.md").write_text(page(made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
