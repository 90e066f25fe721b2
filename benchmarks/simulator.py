"""How fast the simulator is, and how far the planner's fluid model is from single requests.

    python -m benchmarks.simulator [--policy NAME] [--json]

Speed: a run of a static split, arrivals drawn and decisions included, once warm, on one core.
Fluid: goodput of migrator's plans in the planner's model on what really came, against the
simulated one, window by window, at several loads (the part of the GPU that inference alone
would need on average). Real traces where MIGRATOR_DATA names their folder, else generated ones.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from migrator.forecast.selection import forecaster
from migrator.policies.registry import policy
from migrator.simulation.compare import prepare
from migrator.simulation.run import run
from migrator.workload.workloads import workload

LOADS = (0.3, 0.5, 0.7, 0.9)
WORKLOADS = ("W1", "W3", "W8")


def speed(batch: int, name: str = "static-5-2") -> dict[str, float]:
    """Millions of requests per second of one run; the best of five, as others only slow it."""
    scenario = workload("W8", batch=batch)
    chosen, ahead = policy(name), forecaster(scenario.forecaster)
    received, took = 0, []
    for _ in range(5):
        began = perf_counter()
        received = run(scenario, chosen, ahead).tally.received
        took.append(perf_counter() - began)
    return {"requests": received, "mrps": received / min(took) / 1e6}


def fluid(load: float, name: str, data: Path | None, policy_name: str) -> list[float]:
    """Per window: how much lower or higher the fluid model's goodput is than the simulated one."""
    scenario = replace(workload(name, load=load, data=data), policy=policy_name)
    outcome = run(scenario, policy(policy_name), forecaster(scenario.forecaster))
    return [
        window.fluid / window.tally.goodput - 1
        for window in outcome.windows
        if window.fluid is not None
    ]


def measure(policy_name: str) -> dict[str, object]:
    """Everything, as data."""
    folder = os.environ.get("MIGRATOR_DATA")
    prepare(policy(policy_name))
    run(workload("W8"), policy("static-5-2"), forecaster("last-mean"))  # compile
    differences = {
        load: [
            row
            for name in WORKLOADS
            for row in fluid(load, name, Path(folder) if folder else None, policy_name)
        ]
        for load in LOADS
    }
    return {
        "speed": {f"batch {batch}": speed(batch) for batch in (1, 4, 16)},
        "fluid": {
            str(load): {
                "lowest": min(difference),
                "highest": max(difference),
                "windows": len(difference),
            }
            for load, difference in differences.items()
        },
        "policy": policy_name,
        "traces": "real" if folder else "generated",
    }


def table(figures: dict[str, object]) -> str:
    """The same as Markdown."""
    speeds, fluids = figures["speed"], figures["fluid"]
    assert isinstance(speeds, dict)
    assert isinstance(fluids, dict)
    lines = ["| run of W8 (static-5-2) | requests | million requests per second |", "|---|---|---|"]
    lines += [f"| {k} | {v['requests']:,} | {v['mrps']:.1f} |" for k, v in speeds.items()]
    lines += [
        "",
        f"Fluid model against single requests, {figures['policy']}, {figures['traces']} traces,",
    ]
    lines += [
        f"{', '.join(WORKLOADS)}:",
        "",
        "| load | windows | lowest | highest |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {k} | {v['windows']} | {100 * v['lowest']:+.2f}% | {100 * v['highest']:+.2f}% |"
        for k, v in fluids.items()
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", default="migrator", help="whose plans are compared")
    parser.add_argument("--json", action="store_true", help="print JSON")
    figures = measure(parser.parse_args().policy)
    print(json.dumps(figures) if parser.parse_args().json else table(figures))


if __name__ == "__main__":
    main()
