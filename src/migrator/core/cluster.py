"""Many GPUs: which there are, who has to live on them, and where everybody lives.

A scenario of one GPU is what each of them runs; here is only what ties several together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from migrator.core.catalogue import Board
from migrator.core.outcome import RunOutcome, Tally
from migrator.core.scenario import Scenario, ServedTenant
from migrator.core.service import Service


@dataclass(frozen=True)
class SparingService(Service):
    """A service that leaves out sizes without the memory it needs, and counts on part of the rest.

    `capabilities_rps` is what every MIG policy and the planner go by.
    """

    memory_gib: float = 0.0
    """What one worker needs to serve; 0: not known, so any size will do."""
    spare: float = 0.0
    """The part of every instance's capability that is not counted on."""

    def capabilities_rps(self, board: Board) -> dict[int, float]:
        """GPCs -> requests per second of one instance; 0 where its memory is too small."""
        rates = super().capabilities_rps(board)
        return {
            gpcs: rps * (1 - self.spare) if self._has_room(board, gpcs) else 0.0
            for gpcs, rps in rates.items()
        }

    def _has_room(self, board: Board, gpcs: int) -> bool:
        """Whether it fits into that size; sizes whose memory nobody has published pass."""
        memory_gib = board.plain_profiles[gpcs].memory_gib
        return memory_gib is None or memory_gib >= self.memory_gib


@dataclass(frozen=True)
class ClusterGpu:
    """One GPU of a cluster."""

    name: str
    board: Board
    node: str | None = None
    """The machine it is in; None: not said."""


@dataclass(frozen=True)
class ClusterTenant:
    """A tenant that may live on any GPU whose board can serve it."""

    name: str
    entry: int
    """Tenants written as one entry of the file are of one kind and have the same number."""
    served: Mapping[str, ServedTenant]
    """Board -> the tenant as it is served there; boards that cannot serve it are left out."""


@dataclass(frozen=True)
class Rules:
    """What a placement has to keep, and what it should."""

    apart: tuple[frozenset[str], ...] = ()
    """No two tenants of one of these share a GPU."""
    together: tuple[frozenset[str], ...] = ()
    """All tenants of one of these share a GPU."""
    spare: float = 0.0
    """The part of every instance's capability that placing tenants does not count on."""
    move_s: float = 20.0
    """A move costs what the tenant's goodput is in so many seconds."""


def joined(groups: Iterable[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Groups that share a tenant as one: who must be with the same third is together too."""
    found: list[frozenset[str]] = []
    for group in groups:
        touching = [each for each in found if not each.isdisjoint(group)]
        found = [each for each in found if each.isdisjoint(group)]
        found.append(group.union(*touching))
    return tuple(found)


@dataclass(frozen=True)
class ClusterScenario:
    """Tenants on many GPUs, and how to run them."""

    name: str
    gpus: tuple[ClusterGpu, ...]
    tenants: tuple[ClusterTenant, ...]
    rules: Rules
    window_s: float
    slot_s: float
    windows: int
    policy: str
    forecaster: str
    seed: int
    prepared: bool

    @property
    def slots(self) -> int:
        """Slots of a window."""
        return round(self.window_s / self.slot_s)

    @property
    def boards(self) -> dict[str, Board]:
        """The boards there are, by name, in the order of the GPUs."""
        return {each.board.name: each.board for each in self.gpus}

    def on(self, gpu: ClusterGpu, names: Iterable[str]) -> Scenario:
        """What that GPU alone has to do when these tenants live on it."""
        wanted = set(names)
        return Scenario(
            name=f"{self.name}/{gpu.name}",
            board=gpu.board,
            window_s=self.window_s,
            slot_s=self.slot_s,
            windows=self.windows,
            tenants=tuple(
                each.served[gpu.board.name] for each in self.tenants if each.name in wanted
            ),
            policy=self.policy,
            forecaster=self.forecaster,
            seed=self.seed,
            prepared=self.prepared,
        )


@dataclass(frozen=True)
class GpuPlacement:
    """Who lives on one GPU, and what is expected of it."""

    gpu: ClusterGpu
    tenants: tuple[str, ...]
    goodput_rps: float
    load: float
    """The tenants' mean rates, each over what the whole board could answer for it; summed."""
    planned: bool = True
    """Whether the goodput is that of a plan for these very tenants; else of tenants like them."""


@dataclass(frozen=True)
class Unplaced:
    """A tenant without a GPU."""

    tenant: str
    why: str


@dataclass(frozen=True)
class ClusterPlan:
    """Where everybody lives, what that is worth, and how much more there could be."""

    scenario: str
    gpus: tuple[GpuPlacement, ...]
    unplaced: tuple[Unplaced, ...]
    upper_bound_rps: float
    """No placement has more goodput by the same measure."""
    one_more_rps: Mapping[str, float]
    """Board -> about what one more GPU of it would bring."""
    moved: tuple[str, ...]
    """Tenants that lived elsewhere before."""
    notes: tuple[str, ...]
    place_s: float

    @property
    def goodput_rps(self) -> float:
        """Of all GPUs together."""
        return sum(each.goodput_rps for each in self.gpus)

    @property
    def gap(self) -> float:
        """How far above the placement another could be at most, relative to the bound."""
        if self.upper_bound_rps <= 0:
            return 0.0
        return max(0.0, 1 - self.goodput_rps / self.upper_bound_rps)

    @property
    def placement(self) -> dict[str, str]:
        """Tenant -> GPU."""
        return {name: each.gpu.name for each in self.gpus for name in each.tenants}


@dataclass(frozen=True)
class ClusterOutcome:
    """A cluster's run: what came of every GPU's."""

    plan: ClusterPlan
    runs: tuple[RunOutcome, ...]
    """In the order of the plan's GPUs that have tenants."""

    @property
    def scenario(self) -> str:
        """What was run."""
        return self.plan.scenario

    @property
    def policy(self) -> str:
        """The policy of every GPU."""
        return self.runs[0].policy

    @property
    def forecaster(self) -> str:
        """Who looked ahead on every GPU."""
        return self.runs[0].forecaster

    @property
    def seed(self) -> int:
        """What arrivals followed."""
        return self.runs[0].seed

    @property
    def tally(self) -> Tally:
        """All GPUs together."""
        return sum((each.tally for each in self.runs), Tally())

    @property
    def reconfigurations(self) -> int:
        """All GPUs together."""
        return sum(each.reconfigurations for each in self.runs)

    @property
    def plan_s(self) -> float:
        """Wall time spent planning windows, all GPUs together; placing is not in it."""
        return sum(each.plan_s for each in self.runs)
