"""Certified gap of the `survivors` planner on random windows.

`python -m benchmarks.survivors_gap [--windows N] [--tenants 2 3] [--limit S] [--out DIR]
[--before FILE] [--clock]`. The planner counts work instead of seconds, so the plans do not depend
on the load of the machine; times are CPU times of the process. `--before`: the JSON file of an
earlier planner on the same windows, for a table of both. `--clock`: the limit is in seconds.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.problems import random_window
from migrator.core.problem import Charge, Problem
from migrator.planning.planners import ready
from migrator.planning.solve import make_plan

PROVEN = 1e-6
"""Relative gap below which a plan counts as proven optimal."""
FIRST_SEED = 70_000
Row = dict[str, Any]


def main() -> int:
    """Plan the windows, write the rows and the table."""
    parser = argparse.ArgumentParser(description="Certified gap of the survivors planner.")
    add = parser.add_argument
    add("--windows", type=int, default=60, help="windows per number of tenants")
    add("--tenants", type=int, nargs="+", default=[2, 3])
    add("--limit", type=float, default=2.0, help="time limit in seconds, as a budget of work")
    add("--seed", type=int, default=FIRST_SEED, help="seed of the first window")
    add("--out", type=Path, default=Path("out/benchmarks"))
    add("--before", type=Path, help="rows of an earlier planner on the same windows")
    add("--clock", action="store_true", help="limit the seconds, not the work")
    options = parser.parse_args()
    ready(Charge.SURVIVORS)
    rows = []
    for tenants in options.tenants:
        for seed in range(options.seed, options.seed + options.windows):
            rows.append(_measure(seed, tenants, options.limit, steady=not options.clock))
            print(_line(rows[-1]), file=sys.stderr, flush=True)
    before = json.loads(options.before.read_text())["rows"] if options.before else None
    options.out.mkdir(parents=True, exist_ok=True)
    record = {
        "command": shlex.join(["python", "-m", "benchmarks.survivors_gap", *sys.argv[1:]]),
        "machine": describe_machine(),
        "rows": rows,
        **({"before": before} if before else {}),
    }
    (options.out / "survivors_gap.json").write_text(json.dumps(record, indent=1) + "\n")
    print(table(rows, before))
    return 0


def window(seed: int, tenants: int) -> Problem:
    """Overhead 0.5 to 5 s, load 0.5 to 1.3, 50 to 200 slots of one second."""
    rng = np.random.default_rng([seed, tenants])
    return random_window(
        seed,
        tenants=tenants,
        slots=int(rng.integers(50, 201)),
        overhead_s=round(float(rng.uniform(0.5, 5.0)), 1),
        load=float(rng.uniform(0.5, 1.3)),
        charge=Charge.SURVIVORS,
    )


def _measure(seed: int, tenants: int, limit_s: float, *, steady: bool) -> Row:
    problem = window(seed, tenants)
    began = time.process_time()
    plan = make_plan(problem, time_limit_s=limit_s, steady=steady)
    return {
        "seed": seed,
        "tenants": tenants,
        "slots": problem.slots,
        "overhead_s": problem.tenants[0].overhead_s,
        "goodput": plan.goodput,
        "upper_bound": plan.upper_bound,
        "gap": plan.gap,
        "cpu_s": time.process_time() - began,
        "solve_s": plan.solve_s,
    }


def _line(row: Row) -> str:
    return (
        f"seed {row['seed']}, {row['tenants']} tenants, {row['slots']} slots, "
        f"{row['overhead_s']} s: gap {row['gap']:.3%}, goodput {row['goodput']:.1f}, "
        f"{row['cpu_s']:.2f} s"
    )


def table(rows: list[Row], before: list[Row] | None) -> str:
    """Markdown: one line per planner and number of tenants."""
    lines = [
        "| planner | tenants | windows | gap median | 95% | max | at most 1% | at most 2% "
        "| proven | goodput | CPU median | max |",
        "| " + "--- | " * 12,
    ]
    earlier = {(row["seed"], row["tenants"]): row for row in before or ()}
    for tenants in sorted({row["tenants"] for row in rows}):
        now = [row for row in rows if row["tenants"] == tenants]
        old = [earlier[row["seed"], tenants] for row in now if (row["seed"], tenants) in earlier]
        if old:
            lines.append(_summary("before", old, old))
        lines.append(_summary("now", now, old))
    return "\n".join(lines) + "\n"


def page_table(rows: list[Row]) -> list[str]:
    """The lines of the page: one per number of tenants."""
    lines = []
    for tenants in sorted({row["tenants"] for row in rows}):
        cells = _cells([row for row in rows if row["tenants"] == tenants])
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cells(rows: list[Row]) -> list[str]:
    """Tenants, windows, gaps, and how many windows are at most so far open."""
    gaps = np.array([row["gap"] for row in rows])
    parts = (f"{(gaps <= limit).mean():.0%}" for limit in (0.01, 0.02))
    quantiles = (f"{np.quantile(gaps, 0.95):.2%}", f"{gaps.max():.2%}")
    numbers = (str(rows[0]["tenants"]), str(len(rows)), f"{np.median(gaps):.3%}")
    return [*numbers, *quantiles, *parts, f"{(gaps < PROVEN).mean():.0%}"]


def _summary(name: str, rows: list[Row], reference: list[Row]) -> str:
    cpu = np.array([row["cpu_s"] for row in rows])
    ratio = "-"
    if len(reference) == len(rows):
        pairs = zip(rows, reference, strict=True)
        ratio = f"{np.mean([pair['goodput'] / other['goodput'] for pair, other in pairs]):.3%}"
    times = (f"{np.median(cpu):.2f} s", f"{cpu.max():.2f} s")
    return f"| {' | '.join([name, *_cells(rows), ratio, *times])} |"


if __name__ == "__main__":
    sys.exit(main())
