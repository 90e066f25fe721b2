"""The paper's workloads under several policies: the runs that most experiments look at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from migrator.core.comparison import ALL_SCENARIOS, Row, summarise
from migrator.policies.policy import Policy
from migrator.reproduce.experiment import Outcomes, Setting
from migrator.reproduce.sources import Supposing, WorkloadSource
from migrator.simulate.compare import Job
from migrator.workload.workloads import LOAD, workloads

PAPERS_PEERS = ("ekya", "astraea", "paris")
"""Whom the paper compares itself with."""
SHORT = tuple(workloads())[:8]
"""The workloads on NC-CIFAR-10."""


@dataclass(frozen=True)
class Evaluation:
    """Workloads under policies, run in one way."""

    policies: tuple[str | Policy, ...]
    names: tuple[str, ...] = field(default_factory=lambda: tuple(workloads()))
    batch: int = 1
    slot_s: float = 1.0
    prepared: bool = True
    load: float = LOAD
    supposing: Supposing | None = None

    def jobs(self, setting: Setting) -> tuple[Job, ...]:
        """A run per workload, policy and seed."""
        return tuple(
            Job(self._source(name, setting), policy, seed=seed, windows=_windows(name, setting))
            for name in self.chosen(setting)
            for policy in self.policies
            for seed in setting.seeds
        )

    def measured(self, setting: Setting, outcomes: Outcomes) -> Measured:
        """What came of them."""
        runs = (outcomes[job] for job in self.jobs(setting))
        return Measured(self.chosen(setting), summarise(runs))

    def chosen(self, setting: Setting) -> tuple[str, ...]:
        """The workloads of its own that the setting runs; its first one where that leaves none."""
        return tuple(each for each in self.names if each in setting.workloads) or self.names[:1]

    def _source(self, name: str, setting: Setting) -> WorkloadSource:
        return WorkloadSource(
            *(name, setting.data, self.batch, self.slot_s),
            *(self.prepared, self.load, self.supposing),
        )


@dataclass(frozen=True)
class Measured:
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

    def gain(self, policy: str, peer: str) -> float:
        """By which part the policy's goodput over all workloads is higher than a peer's."""
        return self.goodput(policy) / self.goodput(peer) - 1

    def lines(self, policies: Iterable[str]) -> list[tuple[str, list[Row]]]:
        """Every workload's rows by policy, then those over all of them."""
        names = list(policies)
        found = [(each, [self.of(each, policy) for policy in names]) for each in self.workloads]
        if len(self.workloads) > 1:
            found.append(("average", [self.mean(policy) for policy in names]))
        return found


def _windows(name: str, setting: Setting) -> int:
    return setting.windows(workloads()[name].windows)
