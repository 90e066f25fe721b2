"""Goodput with optional against required retraining, by length of the retrainings.

    python -m benchmarks.optional_retraining --seeds 0 1 2 --values --out docs/results

Runs the paper's workloads with every retraining 0.5 to 4 times as long: every tenant retrained in
every window; optional retraining; and optional retraining that misjudges the value of a gain after
the window by the factors of `--values` (none if none are given after it). A seed is another part of
the generated traces and other durations of retrainings. `--oracle` plans on the arrivals and
accuracies to come. `--charge paper` (the default) plans in a tenth of the time of `survivors`.
`--out` adds the runs to those of other seeds in the file.
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
from migrator.simulation.compare import SimulationJob, run_all
from migrator.workload.workloads import workload, workloads

REQUIRED, OPTIONAL = "required", "optional"
_EQUAL = 1e-4
"""Difference of goodput shares that counts as none."""

Found = dict[str, dict[str, dict[str, dict[str, float]]]]
"""Seed -> factor -> workload -> policy -> goodput over received."""


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
            replace(drift, seconds=drift.seconds and drift.seconds.scaled(self.factor))
            for drift in tenant.drifts
        )
        return replace(tenant, drifts=drifts)


class Planned(Migrator):
    """One plan per window; the value of a gain after the window is off by `factor`."""

    def __init__(
        self,
        name: str,
        charge: Charge,
        *,
        optional: bool,
        factor: float = 1.0,
        sight: Sight = Sight.FORECAST,
    ) -> None:
        super().__init__(name, "", sight, charge, optional=optional)
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
    parser.add_argument("--values", nargs="*", type=float, default=[0.0, 0.5, 2.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--charge", type=Charge, default=Charge.PAPER, choices=list(Charge))
    parser.add_argument("--oracle", action="store_true", help="plan on what will come")
    parser.add_argument("--windows", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    sight = Sight.TRUTH if chosen.oracle else Sight.FORECAST
    policies = [
        Planned(REQUIRED, chosen.charge, optional=False, sight=sight),
        Planned(OPTIONAL, chosen.charge, optional=True, sight=sight),
        *(
            Planned(f"value x {value:g}", chosen.charge, optional=True, factor=value, sight=sight)
            for value in chosen.values
        ),
    ]
    jobs = [
        SimulationJob(LongerRetraining(name, factor), policy, seed=seed, windows=chosen.windows)
        for seed in chosen.seeds
        for factor in chosen.factors
        for name in chosen.workloads
        for policy in policies
    ]
    names = [policy.name for policy in policies]
    goodput = [0.0] * len(jobs)
    for place, outcome in run_all(jobs, chosen.processes):
        goodput[place] = outcome.tally.goodput_share
    rows = iter(goodput)
    goodputs: Found = {
        str(seed): {
            f"{factor:g}": {name: dict(zip(names, rows, strict=False)) for name in chosen.workloads}
            for factor in chosen.factors
        }
        for seed in chosen.seeds
    }
    print(table(goodputs, names))
    if chosen.out:
        path = chosen.out / "optional_retraining.json"
        parsed_json = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(parsed_json | goodputs, indent=1) + "\n", encoding="utf-8")


def table(goodputs: Found, names: Sequence[str]) -> str:
    """By factor: mean goodput of every policy, and by how much optional retraining is ahead."""
    lines = [
        f"| retraining | {' | '.join(names)} | gain | worst workload, mean of seeds | worst run | "
        "runs below |",
        "|---" * (len(names) + 5) + "|",
    ]
    seeds = list(goodputs.values())
    for factor, by_workload in seeds[0].items():
        runs = [goodput for seed in seeds for goodput in seed[factor].values()]
        means = [mean(run[name] for run in runs) for name in names]
        ahead = [run[OPTIONAL] - run[REQUIRED] for run in runs]
        workload_means = [
            mean(seed[factor][name][OPTIONAL] - seed[factor][name][REQUIRED] for seed in seeds)
            for name in by_workload
        ]
        below = sum(lead < -_EQUAL for lead in ahead)
        cells = " | ".join(f"{100 * mean:.2f}%" for mean in means)
        lines.append(
            f"| x {factor} | {cells} | {100 * mean(ahead):+.2f} | {100 * min(workload_means):+.2f} "
            f"| {100 * min(ahead):+.2f} | {below} of {len(ahead)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
