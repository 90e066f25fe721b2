"""Goodput with optional against required retraining, by length of the retrainings.

    python benchmarks/optional_retraining.py --out docs/results

Runs the paper's workloads with every retraining 0.5 to 4 times as long: every tenant retrained in
every window; optional retraining; and optional retraining that misjudges the value of a gain after
the window by a factor. `--charge paper` (the default) plans in a tenth of the time of `survivors`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from migrator.core.problem import Charge
from migrator.core.scenario import Scenario, ServedTenant
from migrator.policies.migrator import Migrator
from migrator.policies.policy import Decision, Observation, Sight
from migrator.simulate.compare import Job, run_all
from migrator.workload.workloads import workload, workloads

REQUIRED, OPTIONAL = "required", "optional"


@dataclass(frozen=True)
class LongerRetraining:
    """A workload whose retrainings take `factor` times as long."""

    workload: str
    factor: float

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """The scenario."""
        plain = workload(self.workload, seed=seed or 0)
        return replace(
            plain, windows=windows or plain.windows, tenants=tuple(map(self._longer, plain.tenants))
        )

    def _longer(self, tenant: ServedTenant) -> ServedTenant:
        drifts = tuple(
            replace(each, seconds=each.seconds and each.seconds.scaled(self.factor))
            for each in tenant.drifts
        )
        return replace(tenant, drifts=drifts)


class Planned(Migrator):
    """One plan per window; the value of a gain after the window is off by `factor`."""

    def __init__(self, name: str, charge: Charge, *, optional: bool, factor: float = 1.0) -> None:
        super().__init__(name, "", Sight.FORECAST, charge, optional=optional)
        self.factor = factor

    def decide(self, observation: Observation) -> Decision:
        """Plan with that value."""
        tenants = tuple(
            replace(view, value_after=self.factor * view.value_after)
            for view in observation.tenants
        )
        return super().decide(replace(observation, tenants=tenants))


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workloads", nargs="+", default=list(workloads()))
    parser.add_argument("--factors", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--values", nargs="+", type=float, default=[0.0, 0.5, 2.0])
    parser.add_argument("--charge", type=Charge, default=Charge.PAPER, choices=list(Charge))
    parser.add_argument("--windows", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    policies = [
        Planned(REQUIRED, chosen.charge, optional=False),
        Planned(OPTIONAL, chosen.charge, optional=True),
        *(
            Planned(f"value x {each:g}", chosen.charge, optional=True, factor=each)
            for each in chosen.values
        ),
    ]
    jobs = [
        Job(LongerRetraining(name, factor), policy, windows=chosen.windows)
        for factor in chosen.factors
        for name in chosen.workloads
        for policy in policies
    ]
    names = [each.name for each in policies]
    goodput = [0.0] * len(jobs)
    for place, outcome in run_all(jobs, chosen.processes):
        goodput[place] = outcome.tally.goodput_share
    rows = iter(goodput)
    found = {
        f"{factor:g}": {name: dict(zip(names, rows, strict=False)) for name in chosen.workloads}
        for factor in chosen.factors
    }
    print(table(found, names))
    if chosen.out:
        path = chosen.out / "optional_retraining.json"
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def table(found: dict[str, dict[str, dict[str, float]]], names: Sequence[str]) -> str:
    """Mean goodput by factor and policy, and the worst difference of a workload."""
    lines = [
        f"| retraining | {' | '.join(names)} | optional - required, worst workload |",
        "|---" * (len(names) + 2) + "|",
    ]
    for factor, by_workload in found.items():
        means = [mean(each[name] for each in by_workload.values()) for name in names]
        worst = min(each[OPTIONAL] - each[REQUIRED] for each in by_workload.values())
        cells = " | ".join(f"{100 * each:.1f}%" for each in means)
        lines.append(f"| x {factor} | {cells} | {100 * worst:+.1f} points |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
