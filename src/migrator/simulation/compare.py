"""Runs every scenario under every policy and seed, in parallel on the machine's cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller

from migrator.control.observation import Policy, Sight, policy_named
from migrator.core.batch import Batch
from migrator.core.errors import InputError
from migrator.core.problem import Charge
from migrator.core.scenario import HIGHEST_SEED, MOST_WINDOWS, Scenario
from migrator.forecast.informer import SavedInformer
from migrator.forecast.selection import forecaster
from migrator.io.task_pool import cores, open_workers
from migrator.planning.planners import ready
from migrator.records.outcome import RunOutcome
from migrator.simulation import tenant
from migrator.simulation.run import run

Source = Callable[[int | None, int | None], Scenario]
"""Maps a seed and a number of windows (None: the scenario's own) to a scenario. Must be
picklable."""


@dataclass(frozen=True)
class SimulationJob:
    """One run: the source of its scenario, and values that override the scenario's."""

    source: Source
    policy: str | Policy | None = None
    """Name of a policy, or an unregistered policy; None: the scenario's own."""
    forecaster: str | None = None
    seed: int | None = None
    windows: int | None = None
    drawn: bool = False
    name: str | None = None
    """Name of the scenario in the outcome; None: its own name."""
    record: bool = False
    """Whether the outcome has records."""
    batches: Callable[[Batch], None] | None = None
    """Gets every batch; only for jobs that run in this process."""

    def scenario(self) -> Scenario:
        """The scenario with the job's overrides. Checks the names."""
        require_range("--windows", self.windows, 1, MOST_WINDOWS)
        require_range("--seed", self.seed, 0, HIGHEST_SEED)
        read = self.source(self.seed, self.windows)
        ahead = forecaster(self.forecaster or read.forecaster)
        if isinstance(ahead, SavedInformer):
            ahead.check_slots(read.slot_s, read.slots)
        return replace(
            read,
            name=self.name or read.name,
            policy=self.chosen(read).name,
            forecaster=ahead.name,
        )

    def chosen(self, scenario: Scenario) -> Policy:
        """The policy to run."""
        if self.policy is None or isinstance(self.policy, str):
            return policy_named(self.policy or scenario.policy)
        return self.policy

    def run(self, step: Callable[[], None] = lambda: None) -> RunOutcome:
        """Run the job in this process. `step`: called after every window."""
        this = self.scenario()
        chosen = self.chosen(this)
        prepare(chosen)
        ahead = forecaster(this.forecaster)
        return run(
            *(this, chosen, ahead),
            drawn=self.drawn,
            record=self.record,
            batches=self.batches,
            step=step,
        )


def require_range(option: str, value: int | None, least: int, most: int) -> None:
    """InputError if an option is given and out of range."""
    if value is not None and not least <= value <= most:
        raise InputError(f"{option}: {value} is out of range; give {least} to {most}")


def prepare(chosen: Policy) -> None:
    """Load or compile the planner of a policy, so that this does not count as planning time."""
    if chosen.sight is not Sight.NOTHING:
        for charge in Charge:
            ready(charge)


def run_all(
    jobs: Sequence[SimulationJob], processes: int | None = None
) -> Iterator[tuple[int, RunOutcome]]:
    """Yield the index and outcome of every job as it ends. Closing the iterator stops running
    jobs."""
    at_once = min(processes or cores(), len(jobs))
    if at_once > 1:
        tenant.ready()
    with open_workers(at_once) as workers:
        yield from workers.as_completed(methodcaller("run"), jobs)
