"""Options and runs of benchmarks that simulate the paper's workloads in other ways.

MIGRATOR_DATA names a folder with real traces; without it traces are generated.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.results_file import Key, code_digest, open_results, traces_digest
from migrator.records.outcome import RunOutcome
from migrator.reproduce.experiment import Setting
from migrator.reproduce.reproduce import run_jobs
from migrator.simulation.compare import SimulationJob, run_all
from migrator.workload.traces.generator import VARIABLE


def options(description: str) -> argparse.ArgumentParser:
    """The options of all these benchmarks."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--workloads", metavar="W1,W2,...", help="default: all that are used")
    parser.add_argument("--windows", type=int, help="most windows of a run; default: 2")
    parser.add_argument("--processes", type=int, help="runs in parallel; default: one per core")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="finished runs, to continue")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    return parser


def setting_of(arguments: argparse.Namespace) -> Setting:
    """Traces, workloads and windows that the options ask for."""
    folder = os.environ.get(VARIABLE)
    setting = Setting(Path(folder) if folder else None, most_windows=arguments.windows)
    if arguments.workloads is None:
        return setting
    return Setting(
        setting.data, setting.seeds, tuple(arguments.workloads.split(",")), arguments.windows
    )


def outcomes_of(
    jobs: Sequence[SimulationJob],
    setting: Setting,
    arguments: argparse.Namespace,
    **made_with: str,
) -> Mapping[SimulationJob, RunOutcome]:
    """The outcome of every run; equal jobs are run once.

    `made_with`: what the runs depend on besides the code and the traces. Runs that were kept are of
    the same.
    """
    wanted = tuple(dict.fromkeys(jobs))
    if arguments.keep is None:
        return run_jobs(wanted, processes=arguments.processes)
    made_with |= {"code": code_digest(), "traces": traces_digest(setting.data)}
    with open_results(arguments.keep, "runs", RunOutcome, made_with) as file:
        kept = {job: file.finished[key] for job in wanted if (key := _key_of(job)) in file.finished}
        left = [job for job in wanted if job not in kept]
        for place, outcome in run_all(left, arguments.processes):
            kept[left[place]] = outcome
            if type(left[place]) is not SimulationJob:
                continue  # its outcome has more than the file keeps
            # no benchmark reads slots
            windows = tuple(replace(window, slots=()) for window in outcome.windows)
            file.add(_key_of(left[place]), replace(outcome, windows=windows))
        return kept


def _key_of(job: SimulationJob) -> Key:
    """The name of a run in a results file: everything that decides its outcome but the code."""
    policy = job.policy if isinstance(job.policy, str) or job.policy is None else job.policy.name
    parts = (type(job).__name__, repr(job.source), policy, job.forecaster, f"{job.windows} windows")
    return ", ".join(map(str, parts)), job.seed or 0


def command(name: str, arguments: argparse.Namespace, setting: Setting) -> str:
    """The command line for the page."""
    data = "" if setting.data is None else f"{VARIABLE}=FOLDER "
    limits = "" if arguments.workloads is None else f" --workloads {arguments.workloads}"
    limits += "" if arguments.windows is None else f" --windows {arguments.windows}"
    return f"{data}python -m benchmarks.{name}{limits}"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]
