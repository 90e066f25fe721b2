"""Many runs at once: every scenario under every policy and seed, over the machine's cores."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context

from migrator.core.errors import InputError
from migrator.core.outcome import RunOutcome, WindowOutcome
from migrator.core.problem import Charge
from migrator.core.scenario import HIGHEST_SEED, MOST_WINDOWS, Scenario
from migrator.forecast.forecaster import Forecaster
from migrator.forecast.informer.forecaster import InformerForecaster, SavedInformer, require_torch
from migrator.forecast.registry import forecaster
from migrator.forecast.selection import Auto
from migrator.plan.solve import ready
from migrator.policies.policy import Policy, Sight
from migrator.policies.registry import policy
from migrator.simulate import tenant
from migrator.simulate.run import windows_of

Source = Callable[[int | None, int | None], Scenario]
"""Seed and number of windows (None: the scenario's own) -> the scenario. Workers get it pickled."""


@dataclass(frozen=True)
class Job:
    """One run: where its scenario comes from, and what the scenario leaves open."""

    source: Source
    policy: str | Policy | None = None
    """By name, or one that nobody else knows; None: the scenario's own."""
    forecaster: str | None = None
    seed: int | None = None
    windows: int | None = None
    drawn: bool = False
    name: str | None = None
    """What the scenario is called in the outcome; None: its own name."""

    def scenario(self) -> Scenario:
        """The scenario with what the job says in its place; names are checked here."""
        _require_range("--windows", self.windows, 1, MOST_WINDOWS)
        _require_range("--seed", self.seed, 0, HIGHEST_SEED)
        read = self.source(self.seed, self.windows)
        ahead = forecaster(self.forecaster or read.forecaster)
        _require_able(ahead, read)
        return replace(
            read,
            name=self.name or read.name,
            policy=self.chosen(read).name,
            forecaster=ahead.name,
        )

    def chosen(self, scenario: Scenario) -> Policy:
        """The policy that runs it."""
        if self.policy is None or isinstance(self.policy, str):
            return policy(self.policy or scenario.policy)
        return self.policy

    def windows_of(self) -> Iterator[WindowOutcome]:
        """Run it here, window by window."""
        this = self.scenario()
        chosen = self.chosen(this)
        prepare(chosen)
        yield from windows_of(this, chosen, forecaster(this.forecaster), drawn=self.drawn)

    def run(self) -> RunOutcome:
        """Run it here."""
        return self.outcome(tuple(self.windows_of()))

    def outcome(self, windows: tuple[WindowOutcome, ...]) -> RunOutcome:
        """What came of it, from what came of its windows."""
        this = self.scenario()
        return RunOutcome(this.name, this.policy, this.forecaster, this.seed, windows)


def _require_range(option: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise InputError(f"{option}: {value} is out of range; give {least} to {most}")


def _require_able(ahead: Forecaster, scenario: Scenario) -> None:
    """Before the run: a model's slots are the scenario's, and torch is there to train one."""
    if isinstance(ahead, SavedInformer):
        ahead.check_slots(scenario.slot_s, scenario.slots)
    asked = ahead.others if isinstance(ahead, Auto) else (ahead,)
    if any(isinstance(each, InformerForecaster) for each in asked):
        require_torch(ahead.name)


def prepare(chosen: Policy) -> None:
    """Load or compile the planner a policy plans with, so that no plan is timed with it."""
    if chosen.sight is not Sight.NOTHING:
        for charge in Charge:
            ready(charge)


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(jobs: Sequence[Job], processes: int | None = None) -> Iterator[tuple[int, RunOutcome]]:
    """Every job's place and outcome, as they end; closing the iterator stops what still runs."""
    at_once = min(processes or cores(), len(jobs))
    if at_once <= 1:
        yield from ((place, job.run()) for place, job in enumerate(jobs))
        return
    tenant.ready()
    # Ctrl-C reaches the workers too; they leave it to us, who end them.
    quiet = (signal.SIGINT, signal.SIG_IGN)
    with get_context("spawn").Pool(at_once, signal.signal, quiet) as pool:
        yield from pool.imap_unordered(_run_one, enumerate(jobs))


def _run_one(numbered: tuple[int, Job]) -> tuple[int, RunOutcome]:
    place, job = numbered
    return place, job.run()
