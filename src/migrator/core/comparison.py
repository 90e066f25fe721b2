"""Summary of runs of several policies, scenarios and seeds.

It has a row per scenario and policy, with the values of every seed. Policies run with the same
seeds, so differences between two of them are taken seed by seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from migrator.core.fairness import Fairness
from migrator.core.outcome import Tally

ALL_SCENARIOS = "all scenarios"
"""Scenario name of the rows with a policy's mean over all scenarios."""
NOT_PEERS = frozenset({"oracle", "oracle-required"})
"""Policies that are not counted as peers: a policy that sees the future is a bound."""
WINDOW_PLAN, REPLANNED, ORACLE = SIDE_BY_SIDE = ("migrator-once", "migrator-replanned", "oracle")
"""The same planner once per window, replanned within it, and with the true arrivals."""
_KIN = frozenset({"migrator", "migrator-required", WINDOW_PLAN, REPLANNED})
"""Variants of one policy: none is a peer of another."""
LEAST_LEAD = 0.0005
"""Share of the received requests below which the oracle's lead is too small to count."""

# Student's t, 97.5% quantile, for 1 to 30 degrees of freedom.
_T95 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
_Z95 = 1.959964


class ComparedRun(Protocol):
    """A run of one GPU or of a cluster, to be compared."""

    @property
    def scenario(self) -> str:
        """Name of the scenario."""

    @property
    def policy(self) -> str:
        """Name of the policy."""

    @property
    def seed(self) -> int:
        """Seed of the arrivals."""

    @property
    def tally(self) -> Tally:
        """The counts of all requests."""

    @property
    def fairness(self) -> Fairness:
        """Between the tenants."""

    @property
    def reconfigurations(self) -> int:
        """Instances or shares that were new."""

    @property
    def plan_s(self) -> float:
        """Wall time spent planning."""


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds with the half width of its 95% confidence interval."""

    mean: float
    half_width: float | None
    """None with a single seed."""


@dataclass(frozen=True)
class SeedValues:
    """A measure of a policy on a scenario: a value per seed, at least one."""

    by_seed: Mapping[int, float]

    @property
    def mean(self) -> float:
        return math.fsum(self.by_seed.values()) / len(self.by_seed)

    def difference_from(self, other: SeedValues) -> SeedMean | None:
        """The mean difference from `other`, over the seeds that both have; None if they have none
        in common.

        A seed with many requests is hard for all policies, so differences vary less over seeds
        than the values do.
        """
        both = [seed for seed in self.by_seed if seed in other.by_seed]
        return (
            estimate([self.by_seed[seed] - other.by_seed[seed] for seed in both]) if both else None
        )


@dataclass(frozen=True)
class Row:
    """A policy on a scenario, over its seeds."""

    scenario: str
    policy: str
    goodput_share: SeedValues
    slo_attainment: SeedValues
    accuracy: SeedValues
    correct_share: SeedValues
    late_share: SeedValues
    dropped_share: SeedValues
    worst_share: SeedValues
    """Goodput share of the tenant with the least."""
    jain_index: SeedValues
    """Of the tenants' goodput shares."""
    reconfigurations: SeedValues
    plan_s: SeedValues

    @property
    def seeds(self) -> int:
        return len(self.goodput_share.by_seed)


@dataclass(frozen=True)
class Relative:
    """A row's goodput relative to another policy's on the same scenario."""

    scenario: str
    policy: str
    share: float | None
    """This row's goodput over the other's; None if the other's is 0."""

    @property
    def change(self) -> float | None:
        """The fraction by which this row's goodput is higher than the other's; negative if
        lower."""
        return None if self.share is None else self.share - 1

    @property
    def gain(self) -> float | None:
        """The fraction by which the other's goodput is higher than this row's, as papers report
        it."""
        return 1 / self.share - 1 if self.share else None


@dataclass(frozen=True)
class Lead:
    """Goodput shares on a scenario: planned once per window, replanned within it, and the
    oracle."""

    scenario: str
    window_plan: float
    replanned: float
    oracle: float

    @property
    def change(self) -> float | None:
        """The fraction by which replanning exceeds the window plan; None if that has no goodput."""
        share = _over(self.replanned, self.window_plan)
        return None if share is None else share - 1

    @property
    def regained(self) -> float | None:
        """The share of the oracle's lead that replanning regains; None if the lead is too small."""
        lead = self.oracle - self.window_plan
        return (self.replanned - self.window_plan) / lead if lead >= LEAST_LEAD else None


def estimate(values: Sequence[float]) -> SeedMean:
    """Mean and half width of the 95% confidence interval of at least one value."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return SeedMean(mean, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return SeedMean(mean, t95(count - 1) * math.sqrt(variance / count))


def t95(freedom: int) -> float:
    """Student's t of a two-sided 95% interval; beyond the table by the Cornish-Fisher expansion."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z = _Z95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


_MEASURES: Mapping[str, Callable[[ComparedRun], float]] = {
    "goodput_share": lambda run: run.tally.goodput_share,
    "slo_attainment": lambda run: run.tally.slo_attainment,
    "accuracy": lambda run: run.tally.accuracy,
    "correct_share": lambda run: run.tally.correct_share,
    "late_share": lambda run: _part(run.tally.late, run.tally.received),
    "dropped_share": lambda run: _part(run.tally.dropped, run.tally.received),
    "worst_share": lambda run: run.fairness.worst_share,
    "jain_index": lambda run: run.fairness.jain_index,
    "reconfigurations": lambda run: float(run.reconfigurations),
    "plan_s": lambda run: run.plan_s,
}

_Measured = dict[str, float]
"""Measure -> value."""


def summarise(outcomes: Iterable[ComparedRun]) -> tuple[Row, ...]:
    """A row per scenario and policy in order of appearance, then each policy over all scenarios.

    A seed that ran twice counts once, by its mean. The mean over all scenarios includes only seeds
    that ran every scenario: leaving out hard scenarios would raise it.
    """
    runs: dict[tuple[str, str], dict[int, list[_Measured]]] = {}
    for run in outcomes:
        measured = {name: measure(run) for name, measure in _MEASURES.items()}
        seeds = runs.setdefault((run.scenario, run.policy), {})
        seeds.setdefault(run.seed, []).append(measured)
    cells = {
        cell: {seed: _mean(runs) for seed, runs in seeds.items()} for cell, seeds in runs.items()
    }
    rows = [_row(*cell, seeds) for cell, seeds in cells.items()]
    return (*rows, *_overall(cells))


def _overall(cells: Mapping[tuple[str, str], Mapping[int, _Measured]]) -> list[Row]:
    scenarios = list(dict.fromkeys(scenario for scenario, _ in cells))
    if len(scenarios) < 2:
        return []
    rows = []
    for policy in dict.fromkeys(policy for _, policy in cells):
        of_policy = [cells.get((scenario, policy), {}) for scenario in scenarios]
        seeds = [seed for seed in of_policy[0] if all(seed in cell for cell in of_policy)]
        if seeds:
            means = {seed: _mean([cell[seed] for cell in of_policy]) for seed in seeds}
            rows.append(_row(ALL_SCENARIOS, policy, means))
    return rows


def _row(scenario: str, policy: str, seeds: Mapping[int, _Measured]) -> Row:
    values = {
        name: SeedValues({seed: measured[name] for seed, measured in seeds.items()})
        for name in _MEASURES
    }
    return Row(scenario, policy, **values)


def _mean(measured: Sequence[_Measured]) -> _Measured:
    return {name: fmean(cell[name] for cell in measured) for name in _MEASURES}


def _part(some: float, whole: float) -> float:
    return some / whole if whole else 0.0


def reference_policy(rows: Iterable[Row]) -> str:
    """The policy that the others are compared with: migrator, or the first one without it."""
    policies = [row.policy for row in rows]
    return "migrator" if "migrator" in policies or not policies else policies[0]


def reference_row(row: Row, rows: Iterable[Row], to: str) -> Row | None:
    """The row of policy `to` on the same scenario; None if it has none or is `row` itself."""
    references = (other for other in rows if (other.scenario, other.policy) == (row.scenario, to))
    return None if row.policy == to else next(references, None)


def relative(rows: Iterable[Row], to: str = "migrator") -> tuple[Relative, ...]:
    """Every row relative to policy `to` on the same scenario; scenarios without it are left out."""
    rows = tuple(rows)
    base = {row.scenario: row.goodput_share.mean for row in rows if row.policy == to}
    return tuple(
        Relative(row.scenario, row.policy, _over(row.goodput_share.mean, base[row.scenario]))
        for row in rows
        if row.scenario in base
    )


def over_best_peer(row: Row, rows: Iterable[Row]) -> float | None:
    """The fraction by which a row's goodput is higher than the best peer's on its scenario.

    None if it has no peer, or none with any goodput.
    """
    no_peers = {row.policy, *NOT_PEERS, *(_KIN if row.policy in _KIN else ())}
    peers = [
        other.goodput_share.mean
        for other in rows
        if other.scenario == row.scenario and other.policy not in no_peers
    ]
    share = _over(row.goodput_share.mean, max(peers, default=0.0))
    return None if share is None else share - 1


def _over(one: float, other: float) -> float | None:
    return one / other if other > 0 else None


def leads(rows: Iterable[Row]) -> tuple[Lead, ...]:
    """Window plan, replanned and oracle of every scenario that has all three, in order."""
    shares: dict[str, dict[str, float]] = {}
    for row in rows:
        shares.setdefault(row.scenario, {})[row.policy] = row.goodput_share.mean
    return tuple(
        Lead(scenario, *(own[policy] for policy in SIDE_BY_SIDE))
        for scenario, own in shares.items()
        if own.keys() >= set(SIDE_BY_SIDE)
    )
