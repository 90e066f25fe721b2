"""Goodput of `migrator` with an estimator that always fails, against retraining every tenant.

    python -m benchmarks.failed_estimates --seeds 0 1 2 --out docs/results

Runs the paper's workloads, and pairs of them with four tenants, under plans that retrain every
tenant in every window, under `migrator`, under `migrator` without any estimate, and under
`migrator` without estimates and without evaluations of the serving models. A seed is another part
of the generated traces and other durations of retrainings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from migrator.control.tenant_state import TenantState
from migrator.core.problem import Charge
from migrator.core.scenario import Scenario, ServedTenant
from migrator.forecast.selection import forecaster
from migrator.io.task_pool import open_workers
from migrator.policies.migrator import Migrator
from migrator.policies.policy import Sight
from migrator.simulation.compare import prepare
from migrator.simulation.run import run
from migrator.simulation.tenant import DriftingModel
from migrator.workload.workloads import LOAD, workload, workloads

EVERYBODY, ESTIMATED, FAILED, UNKNOWN = "everybody", "estimated", "no estimates", "no evaluations"
MODES = (EVERYBODY, ESTIMATED, FAILED, UNKNOWN)
PAIRS = tuple(f"{one}+{other}" for one, other in pairwise(("W1", "W6", "W11", "W16")))
"""Four tenants each, on the board of two: every tenant has half of its load."""


class FailingEstimator(DriftingModel):
    """A model of which no estimate succeeds."""

    def end_estimate(self, state: TenantState, window: int) -> None:
        """Fail."""
        state.model.fail_estimate(f"that for window {window} failed, as all do")


class UnknownModel(FailingEstimator):
    """A model that is not evaluated either, except by its retrainings."""

    @property
    def evaluated(self) -> float | None:
        """Not known."""
        return None


@dataclass(frozen=True)
class Trial:
    """One scenario with one seed under one mode."""

    name: str
    seed: int
    mode: str
    charge: Charge = Charge.PAPER
    windows: int | None = None

    def share(self) -> float:
        """Goodput over received."""
        scenario = scenario_of(self.name, self.seed)
        scenario = replace(scenario, windows=self.windows or scenario.windows)
        policy = Migrator(
            self.mode, "", Sight.FORECAST, self.charge, optional=self.mode != EVERYBODY
        )
        prepare(policy)
        models = {FAILED: FailingEstimator, UNKNOWN: UnknownModel}
        kind = models.get(self.mode, DriftingModel)
        outcome = run(
            scenario,
            policy,
            forecaster(scenario.forecaster),
            models={tenant.name: kind(tenant.drifts) for tenant in scenario.tenants},
        )
        return outcome.tally.goodput_share


def scenario_of(name: str, seed: int) -> Scenario:
    """A workload, or the tenants of two, each with half of its load."""
    names = name.split("+")
    made = [workload(part, load=LOAD / len(names), seed=seed) for part in names]
    tenants = tuple(
        _renamed(tenant, f"{tenant.name}-{number}")
        for number, scenario in enumerate(made)
        for tenant in scenario.tenants
    )
    windows = min(scenario.windows for scenario in made)
    return replace(made[0], name=name, tenants=tenants, windows=windows)


def _renamed(tenant: ServedTenant, name: str) -> ServedTenant:
    return replace(tenant, service=replace(tenant.service, tenant=name))


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scenarios", nargs="+", default=[*workloads(), *PAIRS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--charge", type=Charge, default=Charge.PAPER, choices=list(Charge))
    parser.add_argument("--windows", type=int)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    trials = [
        Trial(name, seed, mode, chosen.charge, chosen.windows)
        for seed in chosen.seeds
        for name in chosen.scenarios
        for mode in MODES
    ]
    shares: dict[Trial, float] = {}
    with open_workers(chosen.processes) as workers:
        for place, share in workers.as_completed(Trial.share, trials):
            shares[trials[place]] = share
    rows = [
        {"scenario": trial.name, "seed": trial.seed, "mode": trial.mode, "goodput": shares[trial]}
        for trial in trials
    ]
    print(table(rows))
    if chosen.out:
        text = json.dumps(rows, indent=1) + "\n"
        (chosen.out / "failed_estimates.json").write_text(text, encoding="utf-8")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Per mode the mean goodput, and against retraining everybody the mean and the worst run."""
    shares = {(row["scenario"], row["seed"], row["mode"]): float(row["goodput"]) for row in rows}
    runs = list(dict.fromkeys((row["scenario"], row["seed"]) for row in rows))
    lines = ["| mode | goodput | against everybody | worst run |", "|---|---|---|---|"]
    for mode in MODES:
        ratios = [shares[*one, mode] / shares[*one, EVERYBODY] - 1 for one in runs]
        goodput = mean(shares[*one, mode] for one in runs)
        lines.append(f"| {mode} | {goodput:.1%} | {mean(ratios):+.1%} | {min(ratios):+.1%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
