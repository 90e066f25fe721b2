"""Advice for a user's own tenants: does dynamic reconfiguration pay, and what would help most.

The scenario is tried at several multiples of its load, and at its own load with one change each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from migrator.advise.leads import OURS, Leads, Sample, measure_leads
from migrator.advise.trial import Trial, TrialResult, run_trial
from migrator.core.catalogue import Board, boards
from migrator.core.errors import InputError
from migrator.core.profiles import on_board
from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.io.task_pool import TaskWorkers
from migrator.simulation.compare import Source
from migrator.workload.capacity import highest_rps

LOADS = (0.5, 1.0, 1.5, 2.0)
"""Multiples of the scenario's load."""
WINDOWS = 4
"""Most windows of a trial unless more are asked for, and fewest samples of a comparison."""


class Change(StrEnum):
    """A change that may help."""

    SHORTER = "retraining in half the time"
    BOARD = "a larger board"
    SECOND = "a second GPU of this kind"
    PREPARED = "prepared workers"


@dataclass(frozen=True)
class ChangedSource:
    """A scenario at a multiple of its load, with one change or none."""

    source: Source
    load: float = 1.0
    change: Change | None = None

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """Build the scenario; rates may exceed what the board can answer."""
        scenario = self.source(seed, windows)
        if self.load != 1.0:
            tenants = (
                replace(tenant, trace=tenant.trace.scaled(self.load)) for tenant in scenario.tenants
            )
            scenario = replace(scenario, tenants=tuple(tenants))
        return scenario if self.change is None else _with_change(scenario, self.change)


@dataclass(frozen=True)
class AtLoad:
    """Results at one multiple of the load."""

    times: float
    board_load: float
    """Part of the board that inference alone would keep busy."""
    leads: Leads
    static: str
    """The best static split in hindsight."""


@dataclass(frozen=True)
class Advice:
    """What was found for a scenario."""

    scenario: str
    board: str
    windows: int
    seeds: int
    loads: tuple[AtLoad, ...]
    changes: Mapping[Change, float]
    """Change -> relative change of migrator's goodput at today's load, the best first."""
    unused: Mapping[Change, str]
    """Change that does not apply -> why."""
    larger: str | None
    """The larger board that was tried."""

    @property
    def today(self) -> AtLoad:
        """Results at the scenario's own load."""
        return next(load for load in self.loads if load.times == 1.0)


_Key = tuple[float, Change | None, int]
"""Multiple of the load, change and seed."""


@dataclass(frozen=True)
class Consultation:
    """The trials that advice for one scenario takes."""

    source: Source
    scenario: Scenario
    windows: int
    seeds: tuple[int, ...]

    @property
    def unused(self) -> dict[Change, str]:
        """Changes that do not apply, and why."""
        return _unused(self.scenario)

    def trials(self) -> dict[_Key, Trial]:
        """Trials by load and by change; only migrator is run with a change."""
        trials: dict[_Key, Trial] = {}
        for seed in self.seeds:
            for load in sorted(LOADS, reverse=True):
                source = ChangedSource(self.source, load)
                trials[load, None, seed] = Trial(source, seed, self.windows)
            for change in Change:
                if change is not Change.SECOND and change not in self.unused:
                    source = ChangedSource(self.source, change=change)
                    trials[1.0, change, seed] = Trial(source, seed, self.windows, ())
        return trials

    def advice(self, results: Mapping[_Key, TrialResult]) -> Advice:
        """What the results of all trials say."""
        loads = tuple(self._at_load(load, results) for load in LOADS)
        ours = {load: at_load.leads.goodput for load, at_load in zip(LOADS, loads, strict=True)}
        today = ours[1.0]
        changes = {Change.SECOND: ours[0.5]}
        for change in dict.fromkeys(change for _, change, _ in results if change is not None):
            of_change = [results[1.0, change, seed] for seed in self.seeds]
            received = sum(result.received for result in of_change)
            goodput = sum(result.goodput(OURS) for result in of_change)
            changes[change] = goodput / received if received else 0.0
        ranked = sorted(changes.items(), key=lambda change: -change[1])
        scenario = self.scenario
        return Advice(
            scenario.name,
            scenario.board.name,
            self.windows,
            len(self.seeds),
            loads,
            {change: goodput / today - 1 if today else 0.0 for change, goodput in ranked},
            self.unused,
            larger.name if (larger := _larger(scenario.board)) else None,
        )

    def _at_load(self, load: float, results: Mapping[_Key, TrialResult]) -> AtLoad:
        trial_results = [results[load, None, seed] for seed in self.seeds]
        samples = [
            Sample(window.received, window.ceiling, window.goodput)
            for result in trial_results
            for window in result.windows
            if window.received
        ]
        if not samples:
            raise InputError(
                f"{self.scenario.name}: nothing comes at {load:g} times the load; raise the rates"
            )
        return AtLoad(
            load, load * board_load(self.scenario), measure_leads(samples), trial_results[0].static
        )


def consult(source: Source, windows: int | None = None) -> Consultation:
    """Prepare advice for a scenario: `windows` of it, or at most `WINDOWS`.

    Every window is a sample. A scenario with fewer windows is run with several seeds.
    """
    read = source(None, windows)
    count = windows or min(read.windows, WINDOWS)
    read = source(None, count)
    if not any(_run_counts(tenant, read).any() for tenant in read.tenants):
        raise InputError(f"{read.name}: no request comes in its windows; raise the rates")
    seeds = max(1, math.ceil(WINDOWS / count))
    return Consultation(source, read, count, tuple(read.seed + more for more in range(seeds)))


def run_consultation(
    consultation: Consultation, workers: TaskWorkers, step: Callable[[], None] = lambda: None
) -> Advice:
    """Run every trial and give the advice."""
    trials = consultation.trials()
    keys, results = list(trials), {}
    for place, result in workers.as_completed(run_trial, list(trials.values())):
        results[keys[place]] = result
        step()
    return consultation.advice(results)


def board_load(scenario: Scenario) -> float:
    """The part of the board that inference alone would keep busy over the run."""
    return sum(
        float(_run_counts(tenant, scenario).mean()) / highest_rps(tenant.service, scenario.board)
        for tenant in scenario.tenants
    )


def _run_counts(tenant: ServedTenant, scenario: Scenario) -> Any:
    end_s = tenant.offset_s + round(scenario.windows * scenario.window_s)
    return tenant.trace.counts[tenant.offset_s : end_s]


def _unused(scenario: Scenario) -> dict[Change, str]:
    reasons: dict[Change, str] = {}
    if not any(drift.seconds for tenant in scenario.tenants for drift in tenant.drifts):
        reasons[Change.SHORTER] = "nothing is retrained"
    if _larger(scenario.board) is None:
        reasons[Change.BOARD] = f"no board in the catalogue is larger than {scenario.board.name}"
    if scenario.prepared:
        reasons[Change.PREPARED] = "they are already"
    return reasons


def _with_change(scenario: Scenario, change: Change) -> Scenario:
    if change is Change.PREPARED:
        return replace(scenario, prepared=True)
    if change is Change.BOARD:
        larger = _larger(scenario.board)
        assert larger is not None, "a board that no other exceeds is not changed"
        tenants = tuple(_moved(tenant, larger) for tenant in scenario.tenants)
        return replace(scenario, board=larger, tenants=tenants)
    tenants = tuple(
        replace(tenant, drifts=_shortened(tenant.drifts)) for tenant in scenario.tenants
    )
    return replace(scenario, tenants=tenants)


def _shortened(drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
    return tuple(
        replace(
            drift,
            seconds=drift.seconds.scaled(0.5),
            others=tuple(
                replace(other, seconds=other.seconds.scaled(0.5)) for other in drift.others
            ),
        )
        if drift.seconds
        else drift
        for drift in drifts
    )


def _larger(board: Board) -> Board | None:
    """The board with the next larger number of SMs, as far as they are published."""
    larger_boards = [
        larger
        for larger in boards().values()
        if all(profile.sms is not None for profile in larger.plain_profiles.values())
        and larger.sms > board.sms
    ]
    return min(larger_boards, key=lambda larger: larger.sms, default=None)


def _moved(tenant: ServedTenant, board: Board) -> ServedTenant:
    profile = on_board(tenant.service.profile, board.name)
    return replace(tenant, service=replace(tenant.service, profile=profile))
