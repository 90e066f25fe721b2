"""A trial: one scenario under migrator, its peers and the best static split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrator.advise.ceiling import ceiling
from migrator.advise.leads import OURS, RIVALS, STATIC
from migrator.advise.static_layouts import static_policies
from migrator.policies.policy import Policy
from migrator.records.outcome import RunOutcome
from migrator.simulation.compare import SimulationJob, Source


@dataclass(frozen=True)
class WindowResult:
    """Requests of one window."""

    received: int
    ceiling: float
    """Goodput that no planner can pass."""
    goodput: Mapping[str, float]
    """Policy -> requests answered in time and correctly."""


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

    def goodput(self, policy: str) -> float:
        """A policy's goodput in all windows."""
        return sum(window.goodput[policy] for window in self.windows)


@dataclass(frozen=True)
class Trial:
    """One scenario and the policies to run on it."""

    source: Source
    seed: int | None = None
    windows: int | None = None
    rivals: tuple[str, ...] = RIVALS

    def run(self) -> TrialResult:
        """Run every policy in this process."""
        runs: dict[str, RunOutcome] = {OURS: self._run(OURS)}
        runs |= {rival: self._run(rival) for rival in self.rivals if rival != STATIC}
        static = "not run"
        if STATIC in self.rivals:
            splits = [self._run(policy) for policy in static_policies(self._job(OURS).scenario())]
            runs[STATIC] = best = max(splits, key=lambda split: split.tally.goodput)
            static = best.policy
        return _result(ceiling(self._job(OURS).scenario()), runs, static)

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
        )
        for at, most in enumerate(highest)
    )
    return TrialResult(windows, static)
