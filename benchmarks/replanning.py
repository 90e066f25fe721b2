"""Whether `migrator` replans where that pays: python -m benchmarks.replanning [--windows N] ...

ResNet-50 and ViT-B/16 on an H200 with pairs of real traces (MIGRATOR_DATA names their folder), in
windows spread evenly over them. Policies side by side: one plan per window, the default that
decides by itself, and the oracle; with --always also the one that always replans. --time measures
how long a replan takes instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.spread_windows import LOAD, SpreadWindow, pair_name, spread_jobs
from benchmarks.traces import Pair, generated_kinds
from migrator.core.errors import InputError
from migrator.policies.policy import Decision, Observation, Policy
from migrator.policies.registry import policy as policy_named
from migrator.simulation.compare import SimulationJob, run_all
from migrator.workload.traces.generator import KINDS, VARIABLE

POLICIES = ("migrator-once", "migrator", "oracle")
ALWAYS = "migrator-replanned"
"""The same as `migrator` in windows in which that decides to replan."""
PAIRS: tuple[Pair, ...] = (
    ("twitter", "alibaba-steady"),
    ("alibaba", "azure"),
    ("twitter", "azure-bursty"),
    ("batch", "azure"),
    ("alibaba-steady", "alibaba"),
    ("batch", "azure-bursty"),
)
Row = dict[str, Any]
"""A window of a pair: goodput by policy, requests received, and the largest certified gap."""


def chosen(text: str | None) -> list[Pair]:
    """The pairs asked for, as twitter+azure,batch+azure; all by default."""
    if text is None:
        return list(PAIRS)
    pairs = []
    for pair_text in text.split(","):
        first, _, second = pair_text.strip().partition("+")
        if first not in KINDS or second not in KINDS:
            kinds = ", ".join(name for name, kind in KINDS.items() if kind.file_name)
            raise InputError(f"--pairs: {pair_text!r} is no pair; join two of {kinds} by a plus")
        pairs.append((first, second))
    return pairs


def data_for(pairs: list[Pair]) -> Path:
    """The folder of real traces; InputError where one is missing."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise InputError(
            f"{VARIABLE} names no folder of real traces; docs/traces.md says where they are"
        )
    missing = generated_kinds(pairs, Path(folder))
    if missing:
        names = ", ".join(KINDS[kind].file_name or kind for kind in missing)
        raise InputError(
            f"{VARIABLE}: its folder lacks {names}; docs/traces.md says where they are"
        )
    return Path(folder)


def measure(
    pair: Pair,
    windows: int,
    data: Path,
    load: float,
    retrain: bool,
    processes: int,
    earlier: Sequence[Row] = (),
    policies: Sequence[str] = POLICIES,
) -> list[Row]:
    """All windows of a pair under the policies, a row per window; `known` rows are completed."""
    sources = [SpreadWindow(pair, n, windows, data, load, retrain) for n in range(windows)]
    rows: dict[object, Row] = {}
    for source in sources:
        about: Row = {"pair": pair_name(pair), "load": load, "retrain": retrain}
        about |= {"window": source.number, "of": windows}
        same = (row for row in earlier if about.items() <= row.items())
        rows[source] = next(same, about)
    jobs = [
        job
        for job in spread_jobs(sources, policies=policies)
        if str(job.policy) not in rows[job.source]
    ]
    for place, outcome in run_all(jobs, processes):
        row = rows[jobs[place].source]
        row["received"] = outcome.tally.received
        row[outcome.policy] = outcome.tally.goodput
        gaps = [plan.gap for window in outcome.windows for plan in window.plans]
        row["gap"] = max(row.get("gap", 0.0), *gaps)
    return list(rows.values())


class TimedPolicy:
    """`migrator`, with the processor time of every decision after a window's first slot."""

    def __init__(self) -> None:
        self._policy = policy_named("migrator")
        self.taken_ms: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def decide(self, observation: Observation) -> Decision:
        began_s = time.process_time()
        decision = self._policy.decide(observation)
        if observation.slot:
            self.taken_ms.append((time.process_time() - began_s) * 1000)
        return decision


def times_row(pair: Pair, windows: int, data: Path, load: float, retrain: bool) -> str:
    """A line of the table of times: how long the replans of all windows of a pair took."""
    timed = TimedPolicy()
    for number in range(windows):
        source = SpreadWindow(pair, number, windows, data, load, retrain)
        SimulationJob(source, cast("Policy", timed), windows=1).run()
    taken = np.array(timed.taken_ms)
    cells = [f"{value:.1f}" for value in (*np.quantile(taken, (0.5, 0.9, 0.99)), taken.max())]
    return f"| {pair_name(pair)} | {len(taken)} | {' | '.join(cells)} |"


def page_table(rows: Sequence[Row]) -> list[str]:
    """The lines of the page: load 0.8, ten windows, inference alone."""
    kept = [row for row in rows if (row["load"], row["of"]) == (0.8, 10) and not row["retrain"]]
    pairs = dict.fromkeys(row["pair"] for row in kept)
    lines = (table_row([row for row in kept if row["pair"] == pair]) for pair in pairs)
    return [f"{line.rpartition(' | ')[0]} |" for line in lines]


def table_row(rows: Sequence[Row], policies: Sequence[str] = POLICIES) -> str:
    """A line of the table: sums over the windows, compared with one plan per window and oracle."""
    received = sum(row["received"] for row in rows)
    goodput = {name: sum(row[name] for row in rows) for name in policies}
    replanned = sum(row["migrator"] != row["migrator-once"] for row in rows)
    cells = [rows[0]["pair"], *(f"{goodput[name] / received:.2%}" for name in policies)]
    cells += [f"{goodput['migrator'] / goodput['migrator-once'] - 1:+.2%}"]
    cells += [f"{goodput['migrator'] / goodput['oracle']:.2%}", f"{replanned} of {len(rows)}"]
    return f"| {' | '.join(cells)} |"


def _rows_in(path: Path | None) -> list[Row]:
    rows: list[Row] = json.loads(path.read_text()) if path and path.exists() else []
    return rows


def main() -> int:
    """Run every pair and print a row for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--load", type=float, default=LOAD, help="part of the GPU inference needs")
    parser.add_argument("--windows", type=int, default=20, help="per pair, spread over the traces")
    parser.add_argument("--pairs", metavar="KIND+KIND,...", help="default: all")
    parser.add_argument("--retrain", action="store_true", help="retrain in every window")
    parser.add_argument("--always", action="store_true", help=f"also {ALWAYS}")
    parser.add_argument("--time", action="store_true", help="measure how long replans take")
    parser.add_argument("--processes", type=int, default=2, help="runs in parallel")
    parser.add_argument("--json", type=Path, metavar="FILE", help="rows; those it has are kept")
    options = parser.parse_args()
    if options.windows < 1 or not 0 < options.load <= 1:
        parser.error("give at least 1 for --windows, and more than 0 and at most 1 for --load")
    try:
        pairs = chosen(options.pairs)
        data = data_for(pairs)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.time:
        print("| traces | replans | median, ms | 90% | 99% | longest |\n|---|---|---|---|---|---|")
        for pair in pairs:
            row = times_row(pair, options.windows, data, options.load, options.retrain)
            print(row, flush=True)
        return 0
    policies = (*POLICIES, ALWAYS) if options.always else POLICIES
    names = [f"`{name}`" for name in policies]
    compared = ["`migrator` to once", "`migrator` of the oracle", "windows that differ"]
    print(f"| traces | {' | '.join([*names, *compared])} |")
    print(f"|{'---|' * (1 + len(names) + len(compared))}", flush=True)
    for pair in pairs:
        earlier = _rows_in(options.json)
        setting = options.windows, data, options.load, options.retrain, options.processes
        rows = measure(pair, *setting, earlier, policies)
        print(table_row(rows, policies), flush=True)
        if options.json:
            others = [row for row in earlier if row not in rows]
            options.json.write_text(json.dumps([*others, *rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
