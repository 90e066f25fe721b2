"""A trial: one scenario under migrator, its peers and the best static split, beside the ceiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrator.advise.ceiling import ceiling
from migrator.advise.static_splits import static_policies
from migrator.control.observation import Policy
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
