"""A trial: one scenario under migrator, its peers and the best static split, beside the ceiling.

The best split that never changes is chosen in hindsight. Every layout in which each tenant has
instances to serve and at most one to retrain is valued in a fluid model with the requests that
came. The best ones are then simulated, and the paper's splits beside them. The ceiling is what no
planner can pass.

The windows of all trials are samples of the lead over every policy, with confidence intervals.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board, Multiset, multiset_of, multisets, placement_sets
from migrator.core.comparison import SeedMean, t95
from migrator.core.errors import InputError
from migrator.core.problem import Instance, Kind, Task
from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.policies.fixed_shares import GPCS
from migrator.policies.layouts import least_gpcs
from migrator.policies.policy import Decision, Observation, Policy
from migrator.policies.registry import policy as policy_named
from migrator.records.outcome import RunOutcome
from migrator.simulation.compare import SimulationJob, Source
from migrator.workload.arrivals import TenantArrivals


def ceiling(scenario: Scenario) -> tuple[float, ...]:
    """By window, the goodput if every request is answered in time by the best model there could be.

    It counts expected correct answers: a run that draws each answer may exceed it by chance.
    """
    totals = np.zeros(scenario.windows)
    for number, tenant in enumerate(scenario.tenants):
        totals += _tenant_ceiling(scenario, tenant, number)
    return tuple(float(total) for total in totals)


def best_accuracies(drifts: tuple[Drift, ...], windows: int) -> tuple[float, ...]:
    """By window, the highest accuracy that any choice of retrainings can reach in it.

    A retraining may be refused, end in its window or in a later one. A model that is not retrained
    loses accuracy as the simulator has it.
    """
    found: list[float] = []
    for window in range(windows):
        drift = drifts[window] if window < len(drifts) else None
        before = drifts[window - 1] if 0 < window <= len(drifts) else None
        kept = 1.0
        if drift is not None and before is not None and before.accuracy_post:
            kept = drift.accuracy_pre / before.accuracy_post
        reached = [min(1.0, found[-1] * kept) if found else 1.0]
        if drift is not None:
            reached = [drift.accuracy_pre, *(reached if found else ())]
            reached += [drift.accuracy_post] if drift.seconds is not None else []
        found.append(max(reached))
    return tuple(found)


def _tenant_ceiling(scenario: Scenario, tenant: ServedTenant, number: int) -> NDArray[np.float64]:
    """A request that arrives shortly before a window's end may be answered by the next one's
    model."""
    best = best_accuracies(tenant.drifts, scenario.windows)
    arrivals = TenantArrivals(tenant.trace, scenario.slot_s, scenario.seed, number)
    window_s, offset_s = scenario.window_s, tenant.offset_s
    totals = np.zeros(scenario.windows)
    for window in range(scenario.windows):
        begin_s, end_s = window * window_s, (window + 1) * window_s
        times = arrivals.times(offset_s + begin_s, offset_s + end_s) - offset_s
        until = np.floor((times + tenant.service.slo_s) / window_s).astype(int)
        until = np.clip(until, window, scenario.windows - 1)
        reachable = np.maximum.accumulate(best[window:])
        totals[window] = reachable[until - window].sum()
    return totals


@dataclass(unsafe_hash=True)
class FixedLayout(Policy):
    """The same instances in every window."""

    name: str
    sizes: tuple[tuple[Task, int], ...]
    """Task and GPCs of each instance."""
    summary = "the same instances through every window"
    on_completion = False

    def decide(self, observation: Observation) -> Decision:
        """Return the fixed instances."""
        return Decision((place_instances(observation.board, self.sizes),))


def place_instances(board: Board, sizes: tuple[tuple[Task, int], ...]) -> tuple[Instance, ...]:
    """Place instances of these sizes at the first legal positions; InputError if there are none."""
    wanted: Multiset = tuple(sorted((gpcs for _, gpcs in sizes), reverse=True))
    for chosen in placement_sets(board):
        if multiset_of(chosen) == wanted:
            return tuple(_assigned({p.start: p.gpcs for p in chosen}, sizes))
    raise InputError(f"instances of {wanted} GPCs never fit {board.name}; use smaller ones")


def _assigned(starts: dict[int, int], sizes: tuple[tuple[Task, int], ...]) -> Iterator[Instance]:
    free = dict(starts)
    for task, gpcs in sizes:
        start = next(each for each, size in free.items() if size == gpcs)
        del free[start]
        yield Instance(start, gpcs, task)


def fits(board: Board, sizes: tuple[int, ...]) -> bool:
    """Whether instances of these sizes can exist at once."""
    return any(
        Counter(multiset_of(placements)) == Counter(sizes) for placements in placement_sets(board)
    )


SIMULATED = 3
"""Layouts of the fluid model's order that are simulated."""


@dataclass(frozen=True)
class _Choice:
    """Instances of one tenant."""

    serving: Multiset
    training: int | None
    goodput: float

    @property
    def sizes(self) -> Multiset:
        return (*self.serving, *(() if self.training is None else (self.training,)))


def static_policies(scenario: Scenario) -> tuple[Policy, ...]:
    """The splits worth simulating: the best layouts of the fluid model and the paper's splits."""
    return (*_best_layouts(scenario), *_papers_splits(scenario))


def _papers_splits(scenario: Scenario) -> Iterator[Policy]:
    board = scenario.board
    if board.compute_slices != GPCS:
        return
    needed = sum(least_gpcs(tenant.service, board) for tenant in scenario.tenants)
    for serving in range(max(1, needed), GPCS):
        yield policy_named(f"static-{serving}-{GPCS - serving}")


def _best_layouts(scenario: Scenario) -> list[FixedLayout]:
    """Layouts in the order of their goodput in the fluid model."""
    fitting = set(multisets(scenario.board))
    found: dict[Multiset, tuple[float, tuple[_Choice, ...]]] = {(): (0.0, ())}
    for number, tenant in enumerate(scenario.tenants):
        choices = list(_choices(scenario, tenant, number))
        longer: dict[Multiset, tuple[float, tuple[_Choice, ...]]] = {}
        for used, (goodput, chosen) in found.items():
            for choice in choices:
                both = tuple(sorted((*used, *choice.sizes), reverse=True))
                total = goodput + choice.goodput
                if both in fitting and total > longer.get(both, (-1.0, ()))[0]:
                    longer[both] = (total, (*chosen, choice))
        found = longer
    ordered = sorted(found.values(), key=lambda each: -each[0])[:SIMULATED]
    return [_layout(scenario.tenants, chosen) for _, chosen in ordered]


def _layout(tenants: tuple[ServedTenant, ...], chosen: tuple[_Choice, ...]) -> FixedLayout:
    tasks: list[tuple[Task, int]] = []
    words = []
    for tenant, choice in zip(tenants, chosen, strict=True):
        tasks += [(Task(tenant.name, Kind.INFERENCE), gpcs) for gpcs in choice.serving]
        serving = "+".join(map(str, choice.serving))
        if choice.training is not None:
            tasks.append((Task(tenant.name, Kind.RETRAINING), choice.training))
            serving += f" r{choice.training}"
        words.append(serving)
    return FixedLayout(f"split {' | '.join(words)}", tuple(tasks))


def _choices(scenario: Scenario, tenant: ServedTenant, number: int) -> Iterator[_Choice]:
    board, service = scenario.board, tenant.service
    capability = service.capabilities_rps(board)
    arrivals = TenantArrivals(tenant.trace, scenario.slot_s, scenario.seed, number)
    slots = scenario.windows * scenario.slots
    end_s = tenant.offset_s + slots * scenario.slot_s
    received = arrivals.slots(tenant.offset_s, end_s).reshape(scenario.windows, -1)
    trains = any(drift.seconds is not None for drift in tenant.drifts)
    sizes = [None, *(service.training_sizes(board) if trains else ())]
    accuracies = {size: _accuracies(scenario, tenant, size) for size in sizes}
    for serving in multisets(board):
        able = all(capability[gpcs] > 0 for gpcs in serving)
        if not able or serving[0] < service.min_gpcs:
            continue
        answered = np.minimum(received, sum(capability[e] for e in serving) * scenario.slot_s)
        for size, accuracy in accuracies.items():
            yield _Choice(serving, size, float((answered * accuracy).sum()))


def _accuracies(scenario: Scenario, tenant: ServedTenant, size: int | None) -> NDArray[np.float64]:
    """By window and slot, the accuracy with every retraining on an instance of `size` GPCs."""
    found = np.empty((scenario.windows, scenario.slots))
    accuracy, trained = 1.0, True
    for window in range(scenario.windows):
        drift = tenant.drifts[window] if window < len(tenant.drifts) else None
        before = tenant.drifts[window - 1] if 0 < window <= len(tenant.drifts) else None
        if drift is not None and trained:
            accuracy = drift.accuracy_pre
        elif drift is not None and before is not None and before.accuracy_post:
            accuracy = min(1.0, accuracy * drift.accuracy_pre / before.accuracy_post)
        found[window] = accuracy
        end = _last_slot(scenario, scenario.board, drift, size)
        trained = end is not None
        if drift is not None and end is not None:
            found[window, end:] = accuracy = drift.accuracy_post
    return found


def _last_slot(
    scenario: Scenario, board: Board, drift: Drift | None, size: int | None
) -> int | None:
    """The slot from which the retrained model serves; None if that is not in the window."""
    if drift is None or drift.seconds is None or size is None:
        return None
    slots = int(np.ceil(drift.seconds.at(board.sms_of(size)) / scenario.slot_s))
    return slots if slots < scenario.slots else None


OURS = "migrator"
PEERS = ("ekya", "astraea", "paris-reconfiguring", "paris", "equal-mig")
"""Policies of other papers, and the board split evenly."""
STATIC = "best static split"
RIVALS = (*PEERS, STATIC)


@dataclass(frozen=True)
class WindowResult:
    """Requests of one window."""

    received: int
    ceiling: float
    """Goodput that no planner can pass."""
    goodput: Mapping[str, float]
    """Policy -> requests answered in time and correctly."""
    in_time: Mapping[str, float]


@dataclass(frozen=True)
class TrialResult:
    """The outcome of a trial, window by window."""

    windows: tuple[WindowResult, ...]
    static: str
    """The best static split in hindsight."""

    @property
    def received(self) -> int:
        """Requests received in all windows."""
        return sum(window.received for window in self.windows)

    @property
    def ceiling(self) -> float:
        """The ceiling's goodput in all windows."""
        return sum(window.ceiling for window in self.windows)

    def goodput(self, policy: str) -> float:
        """A policy's goodput in all windows."""
        return sum(window.goodput[policy] for window in self.windows)


@dataclass(frozen=True)
class Trial:
    """One scenario and the policies to run on it."""

    source: Source
    seed: int | None = None
    windows: int | None = None
    ours: str = OURS
    """The policy that runs as migrator."""
    rivals: tuple[str, ...] = RIVALS

    def run(self) -> TrialResult:
        """Run every policy in this process."""
        runs: dict[str, RunOutcome] = {OURS: self._run(self.ours)}
        runs |= {rival: self._run(rival) for rival in self.rivals if rival != STATIC}
        static = "not run"
        if STATIC in self.rivals:
            scenario = self._job(self.ours).scenario()
            splits = [self._run(policy) for policy in static_policies(scenario)]
            runs[STATIC] = best = max(splits, key=lambda split: split.tally.goodput)
            static = best.policy
        return _result(ceiling(self._job(self.ours).scenario()), runs, static)

    def _run(self, policy: str | Policy) -> RunOutcome:
        return self._job(policy).run()

    def _job(self, policy: str | Policy) -> SimulationJob:
        return SimulationJob(self.source, policy, seed=self.seed, windows=self.windows)


def run_trial(trial: Trial) -> TrialResult:
    """Run a trial; a function, so that other processes can be given it."""
    return trial.run()


def _result(highest: Sequence[float], runs: Mapping[str, RunOutcome], static: str) -> TrialResult:
    tallies = {name: [window.tally for window in run.windows] for name, run in runs.items()}
    windows = tuple(
        WindowResult(
            tallies[OURS][at].received,
            most,
            {name: tally[at].goodput for name, tally in tallies.items()},
            {name: tally[at].in_time for name, tally in tallies.items()},
        )
        for at, most in enumerate(highest)
    )
    return TrialResult(windows, static)


LEAST = 0.02
"""Relative lead below which a simpler way will do."""


class Verdict(StrEnum):
    """What leads over a static split and over peers mean."""

    PAYS = "MIGRator pays"
    UNSURE = "ahead, but not surely"
    PEER = "another policy does as well"
    STATIC = "a static split will do"


@dataclass(frozen=True)
class Sample:
    """One pair of measurements: the goodput of every policy on the same requests."""

    received: float
    ceiling: float
    goodput: Mapping[str, float]


@dataclass(frozen=True)
class Leads:
    """migrator's lead over every rival and what the ceiling leaves, over paired samples."""

    samples: int
    goodput: float
    """migrator's goodput over received."""
    ceiling: float
    """The ceiling's goodput over received."""
    shares: Mapping[str, float]
    """Rival -> its goodput over received."""
    over: Mapping[str, SeedMean | None]
    """Rival -> relative lead; None if the rival has no goodput."""
    most: Mapping[str, float | None]
    """Rival -> the lead that the ceiling would have."""

    @property
    def rival(self) -> str:
        """The rival with the most goodput."""
        return min(self.over, key=lambda each: _mean(self.over[each]))

    @property
    def verdict(self) -> Verdict:
        """Whether migrator pays: it is ahead of every rival by `LEAST`, and surely ahead.

        A static split will do if nothing is ahead of it by `LEAST`.
        """
        best = max([self.goodput, *self.shares.values()])
        if best < (1 + LEAST) * self.shares.get(STATIC, 0.0):
            return Verdict.STATIC
        if any(_mean(mean) < LEAST for mean in self.over.values()):
            return Verdict.PEER
        sure = all(mean is None or _is_sure(mean) for mean in self.over.values())
        return Verdict.PAYS if sure else Verdict.UNSURE


def measure_leads(samples: Sequence[Sample]) -> Leads:
    """Leads over at least one sample with requests; every sample has the same policies."""
    ours = [sample.goodput[OURS] for sample in samples]
    rivals = [each for each in samples[0].goodput if each != OURS]
    theirs = {rival: [sample.goodput[rival] for sample in samples] for rival in rivals}
    received = math.fsum(sample.received for sample in samples)
    highest = math.fsum(sample.ceiling for sample in samples)
    return Leads(
        samples=len(samples),
        goodput=math.fsum(ours) / received,
        ceiling=highest / received,
        shares={rival: math.fsum(values) / received for rival, values in theirs.items()},
        over={rival: paired_lead(ours, values) for rival, values in theirs.items()},
        most={
            rival: highest / total - 1 if (total := math.fsum(values)) > 0 else None
            for rival, values in theirs.items()
        },
    )


def paired_lead(ours: Sequence[float], theirs: Sequence[float]) -> SeedMean | None:
    """The relative lead of the sum of `ours` over that of `theirs`; None if the latter is 0.

    The interval is that of a ratio of means: Student's t on the differences of each pair from it.
    """
    count, total = len(ours), math.fsum(theirs)
    if total <= 0:
        return None
    ratio = math.fsum(ours) / total
    if count == 1:
        return SeedMean(ratio - 1, None)
    off = [a - ratio * b for a, b in zip(ours, theirs, strict=True)]
    spread = math.sqrt(math.fsum(each * each for each in off) / (count - 1) / count)
    return SeedMean(ratio - 1, t95(count - 1) * spread / (total / count))


def _is_sure(lead: SeedMean) -> bool:
    """Whether the interval excludes 0; a single sample has none and says nothing."""
    return lead.half_width is not None and lead.mean > lead.half_width


def _mean(lead: SeedMean | None) -> float:
    return math.inf if lead is None else lead.mean
