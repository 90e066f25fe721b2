"""A trial: one scenario under migrator, its peers and the best static split, beside the ceiling.

The windows of all trials are samples of the lead over every policy, with confidence intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from migrator.advise.static_splits import ceiling, static_policies
from migrator.control.observation import Policy
from migrator.core.comparison import SeedMean, t95
from migrator.core.outcome import RunOutcome
from migrator.simulate.compare import Job, Source

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
        return sum(each.received for each in self.windows)

    @property
    def ceiling(self) -> float:
        """The ceiling's goodput in all windows."""
        return sum(each.ceiling for each in self.windows)

    def goodput(self, policy: str) -> float:
        """A policy's goodput in all windows."""
        return sum(each.goodput[policy] for each in self.windows)


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
        runs |= {each: self._run(each) for each in self.rivals if each != STATIC}
        static = "not run"
        if STATIC in self.rivals:
            scenario = self._job(self.ours).scenario()
            splits = [self._run(each) for each in static_policies(scenario)]
            runs[STATIC] = best = max(splits, key=lambda each: each.tally.goodput)
            static = best.policy
        return _result(ceiling(self._job(self.ours).scenario()), runs, static)

    def _run(self, policy: str | Policy) -> RunOutcome:
        return self._job(policy).run()

    def _job(self, policy: str | Policy) -> Job:
        return Job(self.source, policy, seed=self.seed, windows=self.windows)


def run_trial(trial: Trial) -> TrialResult:
    """Run a trial; a function, so that other processes can be given it."""
    return trial.run()


def _result(highest: Sequence[float], runs: Mapping[str, RunOutcome], static: str) -> TrialResult:
    tallies = {name: [each.tally for each in run.windows] for name, run in runs.items()}
    windows = tuple(
        WindowResult(
            tallies[OURS][at].received,
            most,
            {name: each[at].goodput for name, each in tallies.items()},
            {name: each[at].in_time for name, each in tallies.items()},
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
        if any(_mean(each) < LEAST for each in self.over.values()):
            return Verdict.PEER
        sure = all(each is None or _is_sure(each) for each in self.over.values())
        return Verdict.PAYS if sure else Verdict.UNSURE


def measure_leads(samples: Sequence[Sample]) -> Leads:
    """Leads over at least one sample with requests; every sample has the same policies."""
    ours = [each.goodput[OURS] for each in samples]
    rivals = [each for each in samples[0].goodput if each != OURS]
    theirs = {rival: [each.goodput[rival] for each in samples] for rival in rivals}
    received = math.fsum(each.received for each in samples)
    highest = math.fsum(each.ceiling for each in samples)
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
