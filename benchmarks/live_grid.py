"""The fixed grid of live settings (`live_cells.py`), simulated and run live.

    python -m benchmarks.live_grid --keep rows.jsonl                  # simulate what rows lack
    python -m benchmarks.live_grid --keep rows.jsonl --most-s 0       # only the tables
    python -m benchmarks.live_grid --write FOLDER                     # scenarios for live.py
    python -m benchmarks.live_grid --live FOLDER --only two-mixed-0.8-30 -- --driver emulated
    python -m benchmarks.live_grid --tables FOLDER                    # of what was run live

A cell is simulated as it is run live: measured profile, board of shares, even split before the
first decision. Every policy runs twice: with idle slices lent as the policy does, and with lending
for every policy on instances. Runs are ordered such that the first ones are a random part of the
grid. `--live` runs cells one after another with `benchmarks/gpu/live.py`, whose options follow
`--`.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.gpu.live import PROFILES, adapt, asked_for, set_rates
from benchmarks.live_cells import (
    LOADS,
    PROFILE,
    RETRAININGS,
    TENANTS,
    TRACES,
    Cell,
    cell_document,
    cells,
    documents,
)
from benchmarks.live_daemon import environment, write_scenario
from benchmarks.machine import describe_machine
from migrator.advise.static_layouts import static_policies
from migrator.core.fairness import Fairness, fairness
from migrator.core.outcome import Tally
from migrator.core.scenario import Scenario
from migrator.forecast.selection import forecaster
from migrator.io.task_pool import open_workers
from migrator.policies.policy import Policy, Sharing, lends
from migrator.policies.registry import policy as policy_named
from migrator.simulation.compare import prepare
from migrator.simulation.run import run
from migrator.workload.file import read_scenario

OURS = "migrator"
PEERS = ("ekya", "astraea", "paris-reconfiguring", "equal-mig")
POLICIES = (OURS, "migrator-paper", *PEERS)
STATIC = "static"
"""The policy of rows of splits that never change; the best of them in hindsight is compared."""
OWN, ALL = "own", "all"
"""Which policies lend idle slices: those that do so; all on instances."""
LAYOUTS = 6
"""Static splits that are simulated: the best ones of the fluid model, with the true arrivals."""
ALL_TENANTS = "all"
"""Rows of live.json that are no tenant's."""
SEEDS = (0, 1)
BELOW = 0.01
"""Part by which a cell may be below the best other policy."""


@dataclass(frozen=True)
class Row:
    """One policy in one cell with the arrivals of one seed."""

    cell: str
    seed: int
    lending: str
    policy: str
    layout: str | None
    """Of a static split."""
    received: Mapping[str, int]
    """Requests of each tenant."""
    goodput: Mapping[str, float]
    took_s: float = 0.0
    """What simulating it took."""

    @property
    def share(self) -> float:
        """Goodput of all tenants over their requests."""
        return sum(self.goodput.values()) / max(1, sum(self.received.values()))

    @property
    def fairness(self) -> Fairness:
        """Between the tenants."""
        return fairness(
            {
                tenant: Tally(received, goodput=self.goodput[tenant])
                for tenant, received in self.received.items()
            }
        )


# Simulated


@lru_cache(maxsize=4)
def scenario_of(cell: Cell, seed: int) -> Scenario:
    """The cell as live.py would run it."""
    document = cell_document(cell)
    adapt(document, asked_for(["--out", "."]))
    set_rates(document, PROFILE)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / PROFILES).write_bytes(PROFILE.read_bytes())
        return read_scenario(write_scenario(Path(folder, f"{cell.name}.yaml"), document), seed)


@dataclass(frozen=True)
class Job:
    """One run to simulate."""

    cell: Cell
    seed: int
    lending: str
    policy: Policy

    def run(self) -> Row:
        """In this process."""
        scenario, began_s = scenario_of(self.cell, self.seed), time.monotonic()
        prepare(self.policy)
        outcome = run(scenario, self.policy, forecaster(scenario.forecaster), even_start=True)
        tallies, name = outcome.tenants, self.policy.name
        is_static = name not in POLICIES
        return Row(
            self.cell.name,
            self.seed,
            self.lending,
            STATIC if is_static else name,
            name if is_static else None,
            {tenant: tally.received for tenant, tally in tallies.items()},
            {tenant: round(tally.goodput, 1) for tenant, tally in tallies.items()},
            round(time.monotonic() - began_s, 1),
        )


def policies_of(cell: Cell, seed: int) -> Iterator[tuple[str, Policy]]:
    """With their lending. Those that lend anyway, or have no instances, run once."""
    scenario = scenario_of(cell, seed)
    every = (*map(policy_named, POLICIES), *static_policies(scenario, LAYOUTS))
    for chosen in every:
        yield OWN, chosen
    for chosen in every:
        if chosen.sharing is Sharing.MIG and not lends(chosen, scenario.board):
            lending: Any = copy.copy(chosen)
            lending.lends = True
            yield ALL, lending


def simulate(
    chosen: Sequence[Cell], seeds: Sequence[int], keep: Path, most_s: float, processes: int
) -> list[Row]:
    """Run what `keep` lacks, a seed after another, until `most_s` have passed."""
    rows, began_s = rows_in(keep), time.monotonic()
    known = {(row.cell, row.seed, row.lending, row.layout or row.policy) for row in rows}
    jobs = [
        Job(cell, seed, lending, policy)
        for seed in seeds
        for cell in chosen
        for lending, policy in policies_of(cell, seed)
        if (cell.name, seed, lending, policy.name) not in known
    ]
    if not jobs or most_s <= 0:
        return rows
    with open_workers(processes) as workers, keep.open("a", encoding="utf-8") as file:
        for _, row in workers.as_completed(Job.run, jobs):
            rows.append(row)
            file.write(json.dumps(asdict(row)) + "\n")
            file.flush()
            if time.monotonic() - began_s > most_s:
                break
    return rows


def rows_in(path: Path) -> list[Row]:
    """What an earlier run has measured."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Row(**json.loads(line)) for line in lines]


# Live


def run_live(names: Iterable[str], folder: Path, options: Sequence[str]) -> None:
    """Each scenario with live.py, into a folder of its own; finished runs are kept."""
    if "emulated" not in options and "--profile" not in options:
        options = ("--profile", str(PROFILE), *options)
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        path = write_scenario(folder / f"{name}.yaml", documents()[name])
        command = [sys.executable, "-m", "benchmarks.gpu.live", "--scenario", str(path)]
        command += ["--out", str(folder / name), *options]
        print(name, flush=True)
        subprocess.run(command, check=True, env=environment())


def live_rows(folder: Path) -> list[Row]:
    """What the clients of live runs counted, from the live.json of every scenario."""
    rows = []
    for path in sorted(folder.glob("*/live.json")):
        counted = json.loads(path.read_text(encoding="utf-8"))["rows"]
        runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in counted:
            if row["tenant"] != ALL_TENANTS:
                runs.setdefault((row["policy"], row["seed"]), []).append(row)
        for (policy, seed), tenants in runs.items():
            received = {row["tenant"]: row["sent"] for row in tenants}
            goodput = {row["tenant"]: float(row["goodput"]) for row in tenants}
            rows.append(Row(path.parent.name, seed, OWN, policy, None, received, goodput))
    return rows


# What it comes to


@dataclass(frozen=True)
class Result:
    """One cell with one seed: the best run of every policy under one rule of lending."""

    cell: str
    seed: int
    by_policy: Mapping[str, Row]

    @property
    def ours(self) -> Row:
        """The run of migrator."""
        return self.by_policy[OURS]

    def lead(self, policy: str) -> float:
        """Goodput of migrator over that of a policy, less one."""
        return self.ours.share / max(1e-9, self.by_policy[policy].share) - 1

    @property
    def best(self) -> str:
        """The policy with most goodput among the peers and the best static split."""
        others = [name for name in (*PEERS, STATIC) if name in self.by_policy]
        return max(others, key=lambda name: self.by_policy[name].share)


def results(rows: Iterable[Row], lending: str) -> list[Result]:
    """Of the cells in which all policies have run."""
    rows = sorted(rows, key=lambda row: (row.cell, row.seed))
    cells_of_grid = [
        (*key, list(group)) for key, group in groupby(rows, key=lambda row: (row.cell, row.seed))
    ]
    most: Counter[str] = Counter()  # rows of each policy: of a static split there are several
    for *_, group in cells_of_grid:
        most |= Counter(row.policy for row in group if row.lending == lending)
    found = []
    for cell, seed, group in cells_of_grid:
        by_policy: dict[str, Row] = {}
        # a policy that has no row of its own for `lending` is the same under both rules
        ranked = sorted(group, key=lambda row: (row.lending == lending, row.share))
        for row in ranked:
            if row.lending in (lending, OWN):
                by_policy[row.policy] = row
        complete = Counter(row.policy for row in group if row.lending == lending) == most
        if complete and {OURS, *PEERS} <= by_policy.keys():
            found.append(Result(cell, seed, by_policy))
    return found


def table(found: Sequence[Result]) -> Iterator[str]:
    """A line per cell and seed, in Markdown: leads, and how even the tenants are."""
    others = [
        name
        for name in (*PEERS, STATIC, "migrator-paper")
        if all(name in result.by_policy for result in found)
    ]
    heads = ("cell", "seed", f"`{OURS}`", *(f"over `{name}`" for name in others))
    heads += ("worst tenant", "of the best other", "Jain's index", "of the best other")
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for result in found:
        ours, best = result.ours.fairness, result.by_policy[result.best].fairness
        leads = [f"{result.lead(name):+.1%}" for name in others]
        cells_of_line = (
            *(result.cell, str(result.seed), f"{result.ours.share:.1%}", *leads),
            *(f"{ours.worst_share:.1%}", f"{best.worst_share:.1%}"),
            *(f"{ours.jain_index:.2f}", f"{best.jain_index:.2f}"),
        )
        yield f"| {' | '.join(cells_of_line)} |"


def page_table(found: Sequence[Result]) -> list[str]:
    """The lines of the page: mean leads over all cells, and over those with a value of an axis."""
    parts = [set(result.cell.split("-")) for result in found]
    others = (*PEERS, STATIC)
    axes = [*TENANTS, *TRACES, *map(str, LOADS), *map(str, RETRAININGS)]
    chosen = {"all": list(found)}
    for value in axes:
        label = f"{value}%" if value in map(str, RETRAININGS) else value
        chosen[label] = [one for one, of in zip(found, parts, strict=True) if value in of]
    lines = []
    for label, cells_of_line in chosen.items():
        over_best = [one.lead(one.best) for one in cells_of_line]
        over = (statistics.mean(one.lead(peer) for one in cells_of_line) for peer in others)
        cells = [label, str(len(cells_of_line)), *(f"{lead:+.1%}" for lead in over)]
        cells += [f"{statistics.mean(over_best):+.1%}", f"{min(over_best):+.1%}"]
        lines.append(f"| {' | '.join([*cells, str(sum(lead < -BELOW for lead in over_best))])} |")
    return lines


def summary(found: Sequence[Result]) -> dict[str, Any]:
    """Mean leads, cells that fall short, and how even the tenants are in the mean."""
    names = [name for name in (*PEERS, STATIC) if all(name in r.by_policy for r in found)]
    over_best = [result.lead(result.best) for result in found]
    short = [
        (f"{result.cell}, seed {result.seed}", result.best, round(result.lead(result.best), 4))
        for result in found
        if result.lead(result.best) < -BELOW
    ]
    return {
        "runs": len(found),
        "lead": {
            name: round(statistics.mean(result.lead(name) for result in found), 4) for name in names
        },
        "lead_over_best": {
            "mean": round(statistics.mean(over_best), 4),
            "median": round(statistics.median(over_best), 4),
            "least": round(min(over_best), 4),
        },
        "below": sorted(short, key=lambda cell: cell[-1]),
        "worst_share": _by_policy(found, names, lambda row: row.fairness.worst_share),
        "jain_index": _by_policy(found, names, lambda row: row.fairness.jain_index),
    }


def _by_policy(
    found: Sequence[Result], names: Sequence[str], value: Callable[[Row], float]
) -> dict[str, float]:
    """The mean over the cells."""
    return {
        name: round(statistics.mean(value(result.by_policy[name]) for result in found), 4)
        for name in (OURS, *names)
    }


def main() -> None:
    """Simulate, or run live, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="cells, comma separated; default all")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--keep", type=Path, help="file of rows: only missing ones are simulated")
    parser.add_argument("--most-s", type=float, default=float("inf"), help="end after these")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a JSON file for rows and summaries")
    parser.add_argument("--write", type=Path, help="write the scenarios into this folder")
    parser.add_argument("--live", type=Path, help="run live into this folder, with live.py")
    parser.add_argument("--tables", type=Path, help="print the tables of live runs in this folder")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    asked, options = parser.parse_args(words[:at]), words[at + 1 :]
    names = asked.only.split(",") if asked.only else list(documents())
    unknown = [name for name in names if name not in documents()]
    if unknown:
        raise SystemExit(f"--only: no cell is called {unknown[0]}; --write FOLDER names all")
    if options and asked.live is None:
        raise SystemExit(f"{options[0]}: options of live.py go with --live")
    if asked.write is not None:
        asked.write.mkdir(parents=True, exist_ok=True)
        for name in names:
            write_scenario(asked.write / f"{name}.yaml", documents()[name])
        return
    if asked.live is not None:
        run_live(names, asked.live, options)
    folder_of_runs = asked.live or asked.tables
    if folder_of_runs is not None:
        rows = live_rows(folder_of_runs)
    else:
        chosen = [cell for cell in cells() if cell.name in names]
        seeds = [int(seed) for seed in asked.seeds.split(",")]
        with tempfile.TemporaryDirectory() as folder:
            keep = asked.keep or Path(folder) / "rows.jsonl"
            rows = simulate(chosen, seeds, keep, asked.most_s, asked.processes)
    record: dict[str, Any] = {"machine": describe_machine()}
    for lending in dict.fromkeys(row.lending for row in rows):
        found = results(rows, lending)
        if not found:
            continue
        record[lending] = summary(found)
        print(f"\nlending: {lending}\n", *table(found), sep="\n")
        print(json.dumps(record[lending], indent=1), flush=True)
    if asked.out is not None:
        record["rows"] = [asdict(row) for row in rows]
        asked.out.write_text(json.dumps(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
