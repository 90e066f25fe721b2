"""Clusters of GPUs: scenarios and placements. Each GPU runs a scenario of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.profiles import Service
from migrator.core.scenario import LabelsAt, Scenario, ServedTenant

_SHORT = 100.0
"""Answers of the tenant with the most weight that a request short of a floor costs a placement."""


@dataclass(frozen=True)
class ClusterService(Service):
    """A service restricted to instances with enough memory, with a share of their capability
    reserved.

    All MIG policies and the planner use `capabilities_rps`.
    """

    memory_gib: float = 0.0
    """Memory that one worker needs; 0: unknown, any size is accepted."""
    spare: float = 0.0
    """The share of every instance's capability kept in reserve."""

    def capabilities_rps(self, board: Board) -> dict[int, float]:
        """GPCs -> requests per second of one instance; 0 if its memory is too small."""
        rates = super().capabilities_rps(board)
        return {
            gpcs: rps * (1 - self.spare) if self._has_room(board, gpcs) else 0.0
            for gpcs, rps in rates.items()
        }

    def _has_room(self, board: Board, gpcs: int) -> bool:
        """Whether it fits into that size; sizes with unpublished memory are accepted."""
        memory_gib = board.plain_profiles[gpcs].memory_gib
        return memory_gib is None or memory_gib >= self.memory_gib


@dataclass(frozen=True)
class ClusterGpu:
    """One GPU of a cluster."""

    name: str
    board: Board
    node: str | None = None
    """The machine it is in; None: not specified."""


@dataclass(frozen=True)
class ClusterTenant:
    """A tenant that can be placed on any GPU whose board can serve it."""

    name: str
    entry: int
    """Index of its entry in the file; tenants of one entry are of the same kind."""
    served: Mapping[str, ServedTenant]
    """Board -> the tenant as served there, without boards that cannot serve it."""


@dataclass(frozen=True)
class Rules:
    """Constraints and costs of placements."""

    apart: tuple[frozenset[str], ...] = ()
    """Groups of tenants of which no two share a GPU."""
    spare: float = 0.0
    """The share of every instance's capability kept in reserve."""
    move_s: float = 20.0
    """Cost of a move in seconds of the tenant's goodput."""


@dataclass(frozen=True)
class ClusterScenario:
    """Tenants and GPUs of a cluster, and how to run them."""

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
    labels: LabelsAt = LabelsAt.START

    @property
    def slots(self) -> int:
        return round(self.window_s / self.slot_s)

    @property
    def boards(self) -> dict[str, Board]:
        """The distinct boards by name, in the order of the GPUs."""
        return {gpu.board.name: gpu.board for gpu in self.gpus}

    @property
    def services(self) -> list[Service]:
        """One of each tenant."""
        return [next(iter(tenant.served.values())).service for tenant in self.tenants]

    @property
    def has_preferences(self) -> bool:
        """Whether tenants have different weights, or floors."""
        return self.short_cost > 0 or len({service.weight for service in self.services}) > 1

    @property
    def short_cost(self) -> float:
        """What a request short of a floor costs a placement, in goodput; 0 without floors."""
        has_floors = any(service.floor > 0 for service in self.services)
        return _SHORT * max(service.weight for service in self.services) if has_floors else 0.0

    def on(self, gpu: ClusterGpu, names: Iterable[str]) -> Scenario:
        """The scenario of one GPU with these tenants."""
        wanted = set(names)
        return Scenario(
            name=f"{self.name}/{gpu.name}",
            board=gpu.board,
            window_s=self.window_s,
            slot_s=self.slot_s,
            windows=self.windows,
            tenants=tuple(
                tenant.served[gpu.board.name] for tenant in self.tenants if tenant.name in wanted
            ),
            policy=self.policy,
            forecaster=self.forecaster,
            seed=self.seed,
            prepared=self.prepared,
            labels=self.labels,
        )


@dataclass(frozen=True)
class Worth:
    """What tenants of a GPU are expected to get, in requests or in requests per second."""

    goodput: float = 0.0
    value: float = 0.0
    """What a placement maximises: goodput times weights, and `ClusterScenario.short_cost` for every
    answered request that a floor asks for. The goodput without weights and floors."""
    short: float = 0.0
    """Requests short of floors."""
    planned: bool = True
    """Whether it is that of a plan for exactly these tenants; otherwise it is an estimate."""

    def scaled(self, factor: float) -> Worth:
        """The same times `factor`."""
        return replace(
            self,
            goodput=self.goodput * factor,
            value=self.value * factor,
            short=self.short * factor,
        )


@dataclass(frozen=True)
class GpuPlacement:
    """The tenants of one GPU and what they are expected to get."""

    gpu: ClusterGpu
    tenants: tuple[str, ...]
    goodput_rps: float
    value_rps: float
    short_rps: float
    """Requests per second short of floors."""
    planned: bool
    """As in `Worth`."""
    load: float
    """Sum of the tenants' mean rates, each relative to the whole board's capability for it."""


@dataclass(frozen=True)
class Unplaced:
    """A tenant without a GPU."""

    tenant: str
    why: str


@dataclass(frozen=True)
class ClusterPlan:
    """A placement with its goodput and an upper bound."""

    scenario: str
    gpus: tuple[GpuPlacement, ...]
    unplaced: tuple[Unplaced, ...]
    upper_bound_rps: float
    """Upper bound on the value of any placement, which is its goodput without preferences."""
    moved: tuple[str, ...]
    """Tenants that were on another GPU before."""
    place_s: float
    has_preferences: bool = False
    """Whether tenants have different weights, or floors."""

    @property
    def goodput_rps(self) -> float:
        return sum(gpu.goodput_rps for gpu in self.gpus)

    @property
    def value_rps(self) -> float:
        return sum(gpu.value_rps for gpu in self.gpus)

    @property
    def short_rps(self) -> float:
        """Requests per second short of floors."""
        return sum(gpu.short_rps for gpu in self.gpus)

    @property
    def gap(self) -> float:
        """Gap between value and upper bound, relative to the bound."""
        if self.upper_bound_rps <= 0:
            return 0.0
        return max(0.0, 1 - self.value_rps / self.upper_bound_rps)

    @property
    def placement(self) -> dict[str, str]:
        """Tenant -> GPU."""
        return {name: gpu.gpu.name for gpu in self.gpus for name in gpu.tenants}

    def require_all_placed(self) -> None:
        """Raise InputError with the reason and the remedy if a tenant has no GPU."""
        if self.unplaced:
            names = shorten([unplaced.tenant for unplaced in self.unplaced])
            raise InputError(f"tenants: no GPU has room for {names}: {self.unplaced[0].why}")


def shorten(names: Sequence[str], most: int = 5) -> str:
    """The names for a sentence, at most `most` of them."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
