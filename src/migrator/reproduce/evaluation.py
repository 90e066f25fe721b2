"""The paper's workloads under several policies: the runs that most experiments evaluate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from migrator.advise.leads import paired_lead
from migrator.core.comparison import ALL_SCENARIOS, Row, SeedMean, SeedValues, summarise
from migrator.policies.policy import Policy, Sight
from migrator.policies.registry import policy as policy_named
from migrator.report.page import Axis, Bars, Table
from migrator.reproduce.experiment import Outcomes, Setting, bars, cell, table
from migrator.reproduce.sources import WorkloadSource
from migrator.simulation.compare import SimulationJob
from migrator.workload.workloads import workloads

PARIS, STATIC_PARIS = "paris-reconfiguring", "paris"
"""PARIS as the paper runs it, which reconfigures when retrainings start and end, and its static
form."""
PAPERS_PEERS = ("ekya", "astraea", PARIS)
"""Policies that the paper compares itself with."""
LABELS = {PARIS: f"{PARIS} (as in the paper)", STATIC_PARIS: f"{STATIC_PARIS} (static)"}
"""Names in headline tables, where the policy's own does not tell enough."""
SHORT = tuple(workloads())[:8]
"""The workloads on NC-CIFAR-10."""
WINDOWS = 2
"""Windows of a run unless more are asked for: many short runs at different places of the traces
say more than a few long ones in the same time."""
AUTO = "auto"
"""The forecaster of the headline: the best of the simple ones and the ridge regression over the
last windows of each tenant."""

Measure = Callable[[Row], SeedValues]

MEASURES: dict[str, Measure] = {
    "goodput": lambda row: row.goodput_share,
    "SLO attainment": lambda row: row.slo_attainment,
    "accuracy": lambda row: row.accuracy,
    "accuracy over received": lambda row: row.correct_share,
}


class Evaluation:
    """Workloads and policies, run under one configuration."""

    def __init__(
        self,
        policies: tuple[str | Policy, ...],
        names: tuple[str, ...] = tuple(workloads()),
        forecaster: str | None = None,
        **parameters: Any,
    ) -> None:
        """`forecaster`: that of the policies that plan on a forecast; None: the last window's mean.

        `parameters`: those of `WorkloadSource` that are not the default.
        """
        self._policies, self._names, self._parameters = policies, names, parameters
        self._forecaster = forecaster

    def jobs(self, setting: Setting) -> tuple[SimulationJob, ...]:
        """A run per workload, policy and seed."""
        return tuple(
            SimulationJob(
                WorkloadSource(name, setting.data, **self._parameters),
                policy,
                self._forecaster if _forecasts(policy) else None,
                seed=seed,
                windows=setting.windows(workloads()[name].windows, WINDOWS),
            )
            for name in self.chosen(setting)
            for policy in self._policies
            for seed in setting.seeds
        )

    def measured(self, setting: Setting, outcomes: Outcomes) -> PolicyResults:
        """Summarise the outcomes of these runs."""
        runs = (outcomes[job] for job in self.jobs(setting))
        return PolicyResults(self.chosen(setting), summarise(runs))

    def chosen(self, setting: Setting) -> tuple[str, ...]:
        """The evaluation's workloads that the setting selects; its first one if there are none."""
        return tuple(name for name in self._names if name in setting.workloads) or self._names[:1]


def _forecasts(given: str | Policy) -> bool:
    chosen = policy_named(given) if isinstance(given, str) else given
    return chosen.sight in (Sight.FORECAST, Sight.START)


@dataclass(frozen=True)
class PolicyResults:
    """Rows by workload and policy, and each policy's mean over the workloads."""

    workloads: tuple[str, ...]
    rows: tuple[Row, ...]

    def of(self, workload: str, policy: str) -> Row:
        """The row of a workload under a policy."""
        return next(row for row in self.rows if row.scenario == workload and row.policy == policy)

    def mean(self, policy: str) -> Row:
        """The policy over all workloads."""
        over = ALL_SCENARIOS if len(self.workloads) > 1 else self.workloads[0]
        return self.of(over, policy)

    def goodput(self, policy: str) -> float:
        """The policy's goodput share over all workloads."""
        return self.mean(policy).goodput_share.mean

    def average(self, measure: str, policy: str) -> float:
        """The policy's value of one of the MEASURES over all workloads."""
        return MEASURES[measure](self.mean(policy)).mean

    def goodputs(self, policy: str) -> dict[str, float]:
        """Workload -> the policy's goodput share."""
        return {
            workload: self.of(workload, policy).goodput_share.mean for workload in self.workloads
        }

    def gain(self, policy: str, peer: str) -> float:
        """Relative gain of the policy's goodput over a peer's, over all workloads."""
        return self.goodput(policy) / self.goodput(peer) - 1

    def lead(self, policy: str, peer: str) -> SeedMean:
        """The same gain with its 95% confidence interval over the workloads, which are pairs."""
        ours, theirs = (list(self.goodputs(name).values()) for name in (policy, peer))
        mean = paired_lead(ours, theirs)
        return mean if mean is not None else SeedMean(math.inf, None)

    def half_widths(self, policy: str, others: Iterable[str]) -> dict[str, float | None]:
        """Half widths of the intervals of the policy's gains over the others."""
        return {other: self.lead(policy, other).half_width for other in others if other != policy}

    def lines(self, policies: Iterable[str]) -> list[tuple[str, list[Row]]]:
        """Every workload's rows by policy, then those over all of them."""
        names = list(policies)
        lines = [
            (workload, [self.of(workload, policy) for policy in names])
            for workload in self.workloads
        ]
        if len(self.workloads) > 1:
            lines.append(("average", [self.mean(policy) for policy in names]))
        return lines


def grouped_bars(
    title: str, measured: PolicyResults, policies: Sequence[str], measure: str
) -> Bars:
    """A bar per policy for every workload and their average."""
    of = MEASURES[measure]
    lines = measured.lines(policies)
    return bars(
        title,
        [name for name, _ in lines],
        {policy: [of(rows[at]).mean for _, rows in lines] for at, policy in enumerate(policies)},
        Axis("workload"),
        Axis(measure, share=True),
        policies,
    )


def shares_table(
    caption: str,
    measured: PolicyResults,
    policies: Sequence[str],
    measure: str,
    *,
    bound: str | None = None,
) -> Table:
    """A row per workload, a column per policy; the best one other than `bound` is highlighted."""
    of = MEASURES[measure]
    lines = measured.lines(policies)
    rivals = [at for at, policy in enumerate(policies) if policy != bound]
    best = [max(rivals, key=lambda at: of(rows[at]).mean) for _, rows in lines]
    return table(
        caption,
        ("workload", *policies),
        [(name, *(cell(of(row)) for row in rows)) for name, rows in lines],
        [(at, column + 1) for at, column in enumerate(best)],
        folded=True,
    )
