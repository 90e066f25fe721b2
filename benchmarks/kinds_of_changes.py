"""What new instances find on their slices in plans of ours: python -m benchmarks.kinds_of_changes

All examples are simulated under a policy; every inference instance that a slot has and the slot
before had not is counted by what was there before. benchmarks/reconfigurations.py weighs by it.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from benchmarks.missed_instances import Room, asked_for
from migrator.core.problem import Instance
from migrator.forecast.selection import forecaster
from migrator.policies.registry import policy
from migrator.simulation.run import run
from migrator.workload.file import read_scenario

EXAMPLES = Path(__file__).parent.parent / "examples"
FILES = ("live.yaml", "quickstart.yaml", "workloads/w*.yaml")


def kinds(path: Path, name: str) -> Counter[Room]:
    """New instances of one simulation."""
    scenario = read_scenario(path)
    outcome = run(scenario, policy(name), forecaster(scenario.forecaster))
    slots = [
        tuple(instance for instance in held if isinstance(instance, Instance))
        for window in outcome.windows
        for held in window.slots
    ]
    moments_s = [float(number) for number in range(len(slots))]
    return Counter(asked.room for asked in asked_for(scenario.board, slots, moments_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="migrator", help="one on MIG instances")
    options = parser.parse_args()
    counts: Counter[Room] = Counter()
    for path in [path for pattern in FILES for path in sorted(EXAMPLES.glob(pattern))]:
        counts += kinds(path, options.policy)
    for room in Room:
        print(f"{room:24} {counts[room]:5} {counts[room] / counts.total():7.1%}")


if __name__ == "__main__":
    main()
