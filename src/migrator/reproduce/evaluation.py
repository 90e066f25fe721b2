"""The paper's workloads under several policies: the runs that most experiments evaluate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from migrator.advise.trial import paired_lead
from migrator.core.catalogue import Board
from migrator.core.comparison import ALL_SCENARIOS, Row, SeedMean, summarise
from migrator.core.errors import InputError
from migrator.core.scenario import DEFAULT_LIMITS, PeerLimits, Scenario, ServedTenant
from migrator.policies.policy import Policy, Sight
from migrator.policies.registry import policy as policy_named
from migrator.report.page import Axis, Bars, Series, Table
from migrator.reproduce.experiment import Outcomes, Setting, cell, table
from migrator.reproduce.map import Gain, with_gain
from migrator.reproduce.replanning import offset
from migrator.simulate.compare import Job
from migrator.workload.arrivals import highest_rps
from migrator.workload.workloads import LOAD, TRACES, WINDOW_S, workload, workloads

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
last windows of each tenant. It needs no torch; `auto-informer` does, and hours."""


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

    def jobs(self, setting: Setting) -> tuple[Job, ...]:
        """A run per workload, policy and seed."""
        return tuple(
            Job(
                WorkloadSource(name, setting.data, **self._parameters),
                each,
                self._forecaster if _forecasts(each) else None,
                seed=seed,
                windows=setting.windows(workloads()[name].windows, WINDOWS),
            )
            for name in self.chosen(setting)
            for each in self._policies
            for seed in setting.seeds
        )

    def measured(self, setting: Setting, outcomes: Outcomes) -> PolicyResults:
        """Summarise the outcomes of these runs."""
        runs = (outcomes[job] for job in self.jobs(setting))
        return PolicyResults(self.chosen(setting), summarise(runs))

    def chosen(self, setting: Setting) -> tuple[str, ...]:
        """The evaluation's workloads that the setting selects; its first one if there are none."""
        return tuple(each for each in self._names if each in setting.workloads) or self._names[:1]


def _forecasts(each: str | Policy) -> bool:
    chosen = policy_named(each) if isinstance(each, str) else each
    return chosen.sight in (Sight.FORECAST, Sight.START)


@dataclass(frozen=True)
class PolicyResults:
    """Rows by workload and policy, and each policy's mean over the workloads."""

    workloads: tuple[str, ...]
    rows: tuple[Row, ...]

    def of(self, workload: str, policy: str) -> Row:
        """The row of a workload under a policy."""
        return next(e for e in self.rows if e.scenario == workload and e.policy == policy)

    def mean(self, policy: str) -> Row:
        """The policy over all workloads."""
        over = ALL_SCENARIOS if len(self.workloads) > 1 else self.workloads[0]
        return self.of(over, policy)

    def goodput(self, policy: str) -> float:
        """The policy's goodput share over all workloads."""
        return self.mean(policy).goodput_share.mean

    def goodputs(self, policy: str) -> dict[str, float]:
        """Workload -> the policy's goodput share."""
        return {each: self.of(each, policy).goodput_share.mean for each in self.workloads}

    def gain(self, policy: str, peer: str) -> float:
        """Relative gain of the policy's goodput over a peer's, over all workloads."""
        return self.goodput(policy) / self.goodput(peer) - 1

    def lead(self, policy: str, peer: str) -> SeedMean:
        """The same gain with its 95% confidence interval over the workloads, which are pairs."""
        ours, theirs = (list(self.goodputs(each).values()) for each in (policy, peer))
        found = paired_lead(ours, theirs)
        return found if found is not None else SeedMean(math.inf, None)

    def half_widths(self, policy: str, others: Iterable[str]) -> dict[str, float | None]:
        """Half widths of the intervals of the policy's gains over the others."""
        return {each: self.lead(policy, each).half_width for each in others if each != policy}

    def lines(self, policies: Iterable[str]) -> list[tuple[str, list[Row]]]:
        """Every workload's rows by policy, then those over all of them."""
        names = list(policies)
        found = [(each, [self.of(each, policy) for policy in names]) for each in self.workloads]
        if len(self.workloads) > 1:
            found.append(("average", [self.mean(policy) for policy in names]))
        return found


INCEPTION, RESNET = "inception-v3", "resnet-50"
ALIBABA, AZURE = TRACES
_BOTH = "W7"
"""The workload that has both models of the motivation."""


class Supposing(StrEnum):
    """Counterfactual assumptions, to measure their effect."""

    SMALL_BOARD = "MPS on the 112 SMs of seven 1g"
    NO_INTERFERENCE = "serving without interference under MPS"
    PRETRAINED = "accuracies measured with published weights"


@dataclass(frozen=True)
class WorkloadSource:
    """One of the paper's workloads with the given parameters.

    On real traces every workload begins at another place of them and, where there is room, at
    another window of its data set, so that an average covers all of both. The load is that of the
    run. Generated traces have no places.
    """

    name: str
    data: Path | None = None
    batch: int = 1
    slot_s: float = 1.0
    prepared: bool = True
    load: float = LOAD
    supposing: Supposing | None = None
    peers: PeerLimits = DEFAULT_LIMITS

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """Build the scenario."""
        made = workload(self.name, batch=self.batch, data=self.data, load=self.load, seed=seed or 0)
        made = replace(
            made,
            slot_s=self.slot_s,
            prepared=self.prepared,
            windows=windows or made.windows,
            peers=self.peers,
        )
        made = made if self.supposing is None else _supposed(made, self.supposing)
        if self.data is None:
            return made
        place = _place(self.name, seed or 0)
        tenants = (
            _moved(each, self.load / 2 * highest_rps(each.service, made.board), place, made.windows)
            for each in made.tenants
        )
        return replace(made, tenants=tuple(tenants))


_PLACES = len(workloads())
_STRIDE = 7
"""Places from one workload to the next: W1 to W8 alone are spread over the traces as well."""


def _place(name: str, seed: int) -> int:
    """The place of a workload; with another seed all workloads move on by one."""
    return (list(workloads()).index(name) * _STRIDE + seed) % _PLACES


def _moved(tenant: ServedTenant, mean_rps: float, number: int, windows: int) -> ServedTenant:
    """The tenant at a place of its trace, with this mean rate in the windows of the run."""
    begin = offset(tenant.trace, number, _PLACES, windows)
    found_rps = float(tenant.trace.counts[begin : begin + windows * WINDOW_S].mean())
    if found_rps == 0:
        raise InputError(
            f"{tenant.trace.name}: nothing comes in {windows} windows from second {begin}; give "
            "the whole trace"
        )
    first = number % max(1, len(tenant.drifts) - windows + 1)
    trace = tenant.trace.scaled(mean_rps / found_rps)
    return replace(tenant, trace=trace, offset_s=begin, drifts=tenant.drifts[first:])


@dataclass(frozen=True)
class Arriving:
    """A model of the motivation with its trace and load."""

    model: str
    trace: str
    load: float
    """Mean rate as a share of what the whole board can answer for the model, or for `load_of`."""
    load_of: str | None = None


@dataclass(frozen=True)
class MotivationSource:
    """Inception-v3, ResNet-50 or both, each on a trace and at a load of its own."""

    name: str
    tenants: tuple[Arriving, ...]
    data: Path | None = None

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """Build the scenario."""
        both = workload(_BOTH, data=self.data, seed=seed or 0)
        tenants = tuple(_recut(both, each) for each in self.tenants)
        return replace(both, name=self.name, tenants=tenants, windows=windows or both.windows)


def _recut(both: Scenario, arriving: Arriving) -> ServedTenant:
    """The model's tenant of W7 with the given arrivals."""
    tenants = {each.name: each for each in both.tenants}
    measure = tenants[arriving.load_of or arriving.model]
    asked = both.tenants[TRACES.index(arriving.trace)]
    rate_rps = arriving.load * highest_rps(measure.service, both.board)
    was_rps = LOAD / 2 * highest_rps(asked.service, both.board)
    trace = asked.trace.scaled(rate_rps / was_rps)
    return replace(tenants[arriving.model], trace=trace, offset_s=asked.offset_s)


def _supposed(scenario: Scenario, supposing: Supposing) -> Scenario:
    if supposing is Supposing.SMALL_BOARD:
        return replace(scenario, board=_small(scenario.board))
    if supposing is Supposing.NO_INTERFERENCE:
        return replace(scenario, tenants=tuple(map(_undisturbed, scenario.tenants)))
    tenants = tuple(
        replace(each, drifts=tuple(with_gain(each.drifts, Gain.PUBLISHED, place)))
        for place, each in enumerate(scenario.tenants)
    )
    return replace(scenario, tenants=tenants)


def _small(board: Board) -> Board:
    """The board with no more SMs in its largest instance than in all its smallest ones together."""
    sms = board.sms_of(1) * board.compute_slices
    profiles = (replace(e, sms=sms) if e.gpcs == board.sizes[-1] else e for e in board.profiles)
    return replace(board, profiles=tuple(profiles))


def _undisturbed(tenant: ServedTenant) -> ServedTenant:
    profile = replace(tenant.service.profile, interference=0.0)
    return replace(tenant, service=replace(tenant.service, profile=profile))


Measure = Callable[[Row], SeedMean]

MEASURES: dict[str, Measure] = {
    "goodput": lambda row: row.goodput_share,
    "SLO attainment": lambda row: row.slo_attainment,
    "accuracy": lambda row: row.accuracy,
    "accuracy over received": lambda row: row.correct_share,
}


def grouped_bars(
    title: str, measured: PolicyResults, policies: Sequence[str], measure: str
) -> Bars:
    """A bar per policy for every workload and their average."""
    of = MEASURES[measure]
    lines = measured.lines(policies)
    series = []
    for at, policy in enumerate(policies):
        found = [of(rows[at]) for _, rows in lines]
        widths = tuple(each.half_width for each in found)
        series.append(
            Series(
                policy,
                tuple(each.mean for each in found),
                widths if any(each is not None for each in widths) else None,
            )
        )
    return Bars(
        title=title,
        categories=tuple(name for name, _ in lines),
        series=tuple(series),
        x=Axis("workload"),
        y=Axis(measure, share=True),
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
