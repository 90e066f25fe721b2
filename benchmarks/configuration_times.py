"""Planning time with several retraining configurations against one:
`python -m benchmarks.configuration_times [--windows N] [--charge CHARGE] [--limit-s S]
[--out FOLDER]`.

Every window is planned with one and with four configurations in the same run, so that the machine
is the same. The four are the window's own, a half and a quarter of its length, and one and a half
of it, with 90%, 70% and 108% of its gain.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.problems import random_window
from benchmarks.runs import table
from migrator.core.problem import Charge, Plan, Problem, RetrainingConfiguration, Tenant
from migrator.planning.planners import ready
from migrator.planning.solve import make_plan

OTHERS = {"half": (0.5, 0.9), "quarter": (0.25, 0.7), "long": (1.5, 1.08)}
"""Name -> (its length, its gain) relative to the window's own configuration."""
NEAR, MOST = 0.01, 2
"""Gaps up to this are counted, and how much longer planning may take."""
Row = dict[str, Any]


def main() -> int:
    """Plan the windows, print a row for each, then the ratios, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--windows", type=int, default=40)
    parser.add_argument("--tenants", type=int, default=2)
    parser.add_argument("--charge", type=Charge, default=Charge.SURVIVORS)
    parser.add_argument("--limit-s", type=float, help="default: 1%% of the window")
    parser.add_argument("--out", type=Path, help="folder for configuration_times.json")
    options = parser.parse_args()
    ready(options.charge)
    rows: list[Row] = []
    for seed in range(options.windows):
        one = random_window(seed, tenants=options.tenants, charge=options.charge)
        four = replace(one, tenants=tuple(map(with_four, one.tenants)))
        row: Row = {"seed": seed}
        for name, problem in (("one", one), ("four", four)):
            plan, seconds = timed(problem, options.limit_s)
            row[name] = {
                "cpu_s": round(seconds, 3),
                "gap": plan.gap,
                "goodput": plan.goodput,
                "configurations": [retraining.configuration for retraining in plan.retrainings],
            }
        rows.append(row)
        print(_line(row), flush=True)
    print(summary(rows))
    if options.out is not None:
        record = {
            "command": f"python -m benchmarks.configuration_times --windows {options.windows} "
            f"--tenants {options.tenants} --charge {options.charge}",
            "machine": describe_machine(),
            "tenants": options.tenants,
            "rows": rows,
        }
        path = options.out / "configuration_times.json"
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


def text(record: Row) -> str:
    """The page."""
    rows = record["rows"]
    lines = []
    for name in ("one", "four"):
        seconds = [row[name]["cpu_s"] for row in rows]
        gaps = [row[name]["gap"] for row in rows]
        near = sum(gap <= NEAR for gap in gaps)
        cells = [
            *(f"{value:.2f} s" for value in (statistics.median(seconds), max(seconds))),
            *(f"{near} of {len(rows)}", f"{max(gaps):.2%}"),
        ]
        lines.append([name, *cells])
    more = statistics.median(row["four"]["goodput"] / row["one"]["goodput"] for row in rows)
    headers = ["configurations", "planning, median", "longest", f"within {NEAR:.0%}", "largest gap"]
    return "\n".join(
        [
            "# Planning time with one and with four configurations",
            "",
            f"Random windows of {record['tenants']} tenants, whose retrainings are required, each "
            "planned with one configuration and with four in the same run: the window's own, and "
            "0.25, 0.5 and 1.5 of its length with 70%, 90% and 108% of its gain. Processor time of "
            "one core.",
            "",
            *table(headers, lines),
            "",
            f"{summary(rows)} The plans have {more:.3f} times the goodput in the median.",
            "",
            f"Machine: {record['machine']['cpu']}, {record['machine']['cores']} cores.",
        ]
    )


def _line(row: Row) -> str:
    one, four = row["one"], row["four"]
    return (
        f"window {row['seed']}: {one['cpu_s']:.3f} s and {four['cpu_s']:.3f} s, gap "
        f"{one['gap']:.2%} and {four['gap']:.2%}, goodput x {four['goodput'] / one['goodput']:.3f} "
        f"({', '.join(four['configurations'])})"
    )


def summary(rows: Sequence[Row]) -> str:
    """The ratios of the processor times, and how many plans are near the optimum."""
    ratios = [row["four"]["cpu_s"] / row["one"]["cpu_s"] for row in rows]
    one_s, four_s = ([row[name]["cpu_s"] for row in rows] for name in ("one", "four"))
    near = [sum(row[name]["gap"] <= NEAR for row in rows) for name in ("one", "four")]
    above = sum(ratio > MOST for ratio in ratios)
    return (
        f"Four configurations against one, {len(rows)} windows: {statistics.median(ratios):.2f} "
        f"times the processor time in the median, {sum(four_s) / sum(one_s):.2f} of all windows, "
        f"{max(four_s) / max(one_s):.2f} of the longest; more than {MOST} times in {above}, "
        f"{max(ratios):.2f} at most. Within {NEAR:.0%} of the bound: {near[0]} with one and "
        f"{near[1]} with four."
    )


def with_four(tenant: Tenant) -> Tenant:
    """The tenant with three further configurations."""
    (own,) = tenant.configurations
    gain = own.accuracy - tenant.accuracy_pre
    others = (
        RetrainingConfiguration(
            min(1.0, tenant.accuracy_pre + part * gain),
            {gpcs: max(1, round(length * slots)) for gpcs, slots in own.slots.items()},
            name,
        )
        for name, (length, part) in OTHERS.items()
    )
    return replace(tenant, configurations=(replace(own, name="own"), *others))


def timed(problem: Problem, limit_s: float | None) -> tuple[Plan, float]:
    """The plan and the processor time that it took."""
    began = time.process_time()
    plan = make_plan(problem, time_limit_s=limit_s, steady=True)
    return plan, time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
