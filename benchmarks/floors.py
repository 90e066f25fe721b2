"""What a floor of the bursty tenant changes in the live comparison, simulated:
`python -m benchmarks.floors [--seeds 0 1 2] [--out docs/results]`.

The scenario of `benchmarks/gpu/live.py` with the profile that was measured beside it: *pictures*
with steady and *objects* with bursty arrivals, two windows of 60 s.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import migrator
from benchmarks.gpu.live import SCENARIO
from benchmarks.gpu.live_settings import Setting, scenario_of
from benchmarks.live_cells import PROFILE
from benchmarks.machine import describe_machine
from benchmarks.runs import table
from migrator.core.scenario import Scenario

BURSTY, STEADY = "objects", "pictures"
WINDOWS = 2
CASES = (("migrator", 0.0), ("migrator", 0.4), ("migrator", 0.6), ("equal-mig", 0.0), ("ekya", 0.0))
"""Policies, and the floor of the bursty tenant."""
FILE = "floors.json"


@dataclass(frozen=True)
class Row:
    """One run: shares of the requests of a tenant, or of all."""

    policy: str
    floor: float
    seed: int
    goodput: float
    steady_goodput: float
    bursty_goodput: float
    steady_in_time: float
    bursty_in_time: float


def main() -> None:
    """Simulate every case and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    options = parser.parse_args()
    rows = []
    for seed in options.seeds:
        scenario = scenario_of(Setting(windows=WINDOWS), seed, SCENARIO, PROFILE).scenario
        for policy, floor in CASES:
            rows.append(row(scenario, policy, floor))
            print(rows[-1], flush=True)
    record = {"machine": describe_machine(), "rows": [asdict(row) for row in rows]}
    (options.out / FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def row(scenario: Scenario, policy: str, floor: float) -> Row:
    """One run of the scenario."""
    tenants = tuple(
        replace(tenant, service=replace(tenant.service, floor=floor))
        if tenant.name == BURSTY
        else tenant
        for tenant in scenario.tenants
    )
    outcome = migrator.simulate(replace(scenario, tenants=tenants), policy).outcome
    steady, bursty = (outcome.tenants[name] for name in (STEADY, BURSTY))
    return Row(
        policy=policy,
        floor=floor,
        seed=scenario.seed,
        goodput=outcome.tally.goodput_share,
        steady_goodput=steady.goodput_share,
        bursty_goodput=bursty.goodput_share,
        steady_in_time=steady.slo_attainment,
        bursty_in_time=bursty.slo_attainment,
    )


def text(record: dict[str, Any]) -> str:
    """The page."""
    rows = [Row(**row) for row in record["rows"]]
    seeds = sorted({row.seed for row in rows})
    lines = [
        "# A floor of the bursty tenant",
        "",
        "The [live comparison](live.md) simulated: *pictures* with steady and *objects* with "
        f"bursty arrivals, {WINDOWS} windows of 60 s, means of seeds "
        f"{', '.join(map(str, seeds))}. [Floors](../scenario-format.md#weights-and-floors) are of "
        "*objects*. Goodput and in time: shares of the requests.",
        "",
        *table(
            ["policy", "floor", "goodput", f"*{BURSTY}*", "in time", f"*{STEADY}*", "in time"],
            [_cells(rows, *case) for case in CASES],
        ),
        "",
        "In time, *objects* by seed: "
        + "; ".join(
            f"seed {seed} "
            + ", ".join(
                f"{row.bursty_in_time:.0%} with a floor of {row.floor:g}"
                for row in rows
                if row.seed == seed and row.policy == "migrator"
            )
            for seed in seeds
        )
        + ".",
        "",
        "A floor comes before all goodput and holds in every slot: where bursts may come at any "
        "time, the plan keeps instances ready for them, and leaves out retrainings for which "
        "nothing remains. That is what goodput pays.",
        "",
    ]
    return "\n".join(lines)


def _cells(rows: Sequence[Row], policy: str, floor: float) -> list[str]:
    chosen = [row for row in rows if (row.policy, row.floor) == (policy, floor)]
    names = ("goodput", "bursty_goodput", "bursty_in_time", "steady_goodput", "steady_in_time")
    shares = [f"{mean(getattr(row, name) for row in chosen):.1%}" for name in names]
    return [f"`{policy}`", f"{floor:g}" if floor else "", *shares]


if __name__ == "__main__":
    main()
