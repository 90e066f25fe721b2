"""INFless (ASPLOS'22): MPS, many small processes, each with its batch size, scaled every second.

A process of `percent` of the SMs with batch b is feasible if a batch takes at most half the
objective (all of it for b = 1). It accepts at most b / exec requests per second, and fills its
batches in time from b / (objective - exec) on. If the rate exceeds what the processes of a tenant
accept, the most efficient feasible ones are added for the rest. If the rate is below four fifths of
the way from their minimum to their maximum, processes are drained, as long as the others still
accept the whole rate. The cost of a reconfiguration is ignored.

Our adaptations:
- Efficiency is requests per second and percent. The original divides it by the rest of the slot, to
  choose among many GPUs. With one GPU that would only favour the process that fills it up, so the
  most efficient one is taken, and the smallest of equals.
- The tenant with the smallest covered part of its rate is served first, one process at a time.
- A drained process lingers: it ends when the largest rate of the last five seconds can be served
  without it. Five was chosen among 1 to 30 in this policy's favour, in trials on real traces.
- Every tenant keeps at least one process. Without history it is assumed to need what an equal part
  of the GPU for every task serves.
- A running process takes the batch that serves most on its share, as our workers do.
- Retrainings get the rest, in equal parts. A running one keeps its share, unless it ends sooner if
  it is restarted on a larger one.
- With the runtime's shares a process has 1, 2 or 4 times the smallest of them (12, 24 or 48% of an
  H200) in place of 10 to 50%.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from migrator.core.catalogue import Board
from migrator.core.problem import Kind, Share, Task
from migrator.core.profiles import Service
from migrator.core.scenario import PeerLimits
from migrator.policies import mps_workers
from migrator.policies.mps_workers import PerService
from migrator.policies.policy import Decision, Observation, Policy, Sharing, TenantView

PERCENTS = (10.0, 20.0, 30.0, 40.0, 50.0)
"""Shares of a process, as far as the limits allow them."""
BATCHES = (1, 2, 4, 8, 16, 32)
LOAD_FACTOR = 0.8
LINGER_S = 5
"""Seconds for which a process must have been unneeded before it is drained."""


class Infless(Policy):
    """Adds and drains processes with the rate."""

    name = "infless"
    summary = "INFless: many small MPS processes, added and drained every second"
    sharing = Sharing.MPS
    every_s = 1.0

    def decide(self, observation: Observation) -> Decision:
        """Drain surplus processes, add missing ones, retrain on the rest."""
        held = _inference_held(observation)
        pools = [_pool(view, observation, held[view.name]) for view in observation.tenants]
        for pool in pools:
            pool.drain()
        _scale_up(pools, mps_workers.reserved_percent(observation))
        serving = [share for pool in pools for share in pool.shares]
        waiting = [view.name for view in observation.tenants if view.retraining]
        left = 100 - sum(share.percent for share in serving)
        parts = mps_workers.equal_parts(waiting, left, observation.board, observation.limits)
        return Decision(((*serving, *mps_workers.trainings(observation, parts)),))


@dataclass(frozen=True)
class _Config:
    """A process with its share and batch size."""

    percent: float
    most_rps: float
    least_rps: float

    @property
    def efficiency(self) -> float:
        """Requests per second and percent, rounded so that equals compare equal."""
        return round(self.most_rps / self.percent, 6)


@dataclass(frozen=True)
class _ConfigMenu:
    """A tenant's feasible configurations, most efficient first, the smallest of equals first."""

    service: Service
    board: Board
    configs: tuple[_Config, ...]
    running: dict[float, _Config]
    """Percent -> the configuration of a process that runs on it."""

    @property
    def least_percent(self) -> float:
        """The smallest share of a process."""
        return min(self.running)


@dataclass
class _TenantProcesses:
    """A tenant's processes."""

    tenant: str
    menu: _ConfigMenu
    rate_rps: float
    peak_rps: float
    """Highest rate of the last seconds."""
    shares: list[Share]

    @property
    def most_rps(self) -> float:
        """The highest rate that the processes accept."""
        return sum(self._config(share).most_rps for share in self.shares)

    @property
    def covered(self) -> float:
        """The share of the rate that they accept."""
        return self.most_rps / self.rate_rps if self.rate_rps > 0 else math.inf

    def drain(self) -> None:
        """Drain the least efficient processes at a low rate, while the others accept all of it."""
        for share in sorted(self.shares, key=lambda share: self._config(share).efficiency):
            least_rps = sum(self._config(share).least_rps for share in self.shares)
            most_rps = self.most_rps
            if self.peak_rps >= least_rps + LOAD_FACTOR * (most_rps - least_rps):
                return
            if len(self.shares) > 1 and most_rps - self._config(share).most_rps >= self.peak_rps:
                self.shares.remove(share)

    def wanted(self, free_percent: float) -> _Config | None:
        """The next process for the uncovered rate; None if none is needed or fits."""
        residue_rps = self.rate_rps - self.most_rps
        fitting = (config for config in self.menu.configs if config.percent <= free_percent + 1e-6)
        return next((level for level in fitting if level.least_rps <= residue_rps), None)

    def add(self, percent: float) -> None:
        """Add one more process."""
        taken = {share.number for share in self.shares}
        number = next(free for free in range(len(taken) + 1) if free not in taken)
        self.shares.append(Share(number, percent, Task(self.tenant, Kind.INFERENCE)))

    def _config(self, share: Share) -> _Config:
        return self.menu.running[share.percent]


def _scale_up(pools: list[_TenantProcesses], reserved: float) -> None:
    """Give every tenant one process, then add one at a time to the tenant with the least
    coverage. `reserved`: percent that running retrainings keep."""
    for pool in pools:
        if not pool.shares:
            pool.add(pool.menu.least_percent)
    free = 100 - reserved - sum(share.percent for pool in pools for share in pool.shares)
    while True:
        wanting = [(pool.covered, place) for place, pool in enumerate(pools) if pool.wanted(free)]
        if not wanting:
            return
        pool = pools[min(wanting)[1]]
        config = pool.wanted(free)
        assert config is not None
        pool.add(config.percent)
        free -= config.percent


def _inference_held(observation: Observation) -> dict[str, list[Share]]:
    """The serving processes, as far as they leave room for tenants without any."""
    held: dict[str, list[Share]] = {view.name: [] for view in observation.tenants}
    usable = percents(observation.board, observation.limits)
    room = 100 - usable[0] * len(held)
    for holding in observation.held:
        if isinstance(holding, Share) and _serves(holding, usable) and holding.task.tenant in held:
            mine = held[holding.task.tenant]
            needs = holding.percent - (0 if mine else usable[0])
            if needs <= room + 1e-9:
                mine.append(holding)
                room -= needs
    return held


def percents(board: Board, limits: PeerLimits) -> tuple[float, ...]:
    """The shares that a process of this policy may have, ascending."""
    least = limits.least_percent(board)
    if limits.allows_any_share(board):
        return tuple(sorted({max(least, percent) for percent in PERCENTS}))
    sizes = {
        mps_workers.process_percent(board, limits, max(least, percent)) for percent in PERCENTS
    }
    return tuple(sorted(round(size, 9) for size in sizes))


def _serves(share: Share, usable: tuple[float, ...]) -> bool:
    """Whether it serves and has a size that this policy uses."""
    return share.task.kind is Kind.INFERENCE and share.percent in usable and share.duty == 1


def _pool(view: TenantView, observation: Observation, shares: list[Share]) -> _TenantProcesses:
    menu = _menu(view.service, observation.board, observation.limits)
    seen_rps = _seen_rps(view, observation.slot_s)
    if not seen_rps:
        tasks = sum(1 + (tenant.retraining is not None) for tenant in observation.tenants)
        seen_rps = [menu.configs[0].efficiency * 100 / tasks if menu.configs else 0.0]
    return _TenantProcesses(view.name, menu, seen_rps[-1], max(seen_rps), shares)


def _seen_rps(view: TenantView, slot_s: float) -> list[float]:
    """The rates of the last seconds (or of slots if those are longer), newest last."""
    slots = max(1, round(1 / slot_s))
    newest = len(view.history)
    oldest = max(0, newest - max(1, round(LINGER_S / slot_s)))
    ends = range(newest, oldest, -slots)
    means = [float(view.history[max(0, end - slots) : end].mean()) for end in ends]
    return [mean / slot_s for mean in reversed(means)]


def _made(service: Service, board: Board, limits: PeerLimits) -> _ConfigMenu:
    usable = percents(board, limits)
    feasible = {percent: _feasible(service, board, percent) for percent in usable}
    configs = sorted(
        (config for some in feasible.values() for config in some),
        key=lambda config: (-config.efficiency, config.percent, config.least_rps),
    )
    menu = _ConfigMenu(service, board, tuple(configs), {})
    menu.running.update({percent: _at(menu, percent) for percent in usable})
    return menu


_menu = PerService(_made)


def _at(menu: _ConfigMenu, percent: float) -> _Config:
    """The configuration with the highest rate on a share; if none is feasible, one with rate 0."""
    nothing = _Config(percent, 0.0, 0.0)
    feasible = _feasible(menu.service, menu.board, percent)
    return max(feasible, key=lambda config: config.most_rps, default=nothing)


def _feasible(service: Service, board: Board, percent: float) -> list[_Config]:
    """Every batch that meets the objective on a share."""
    sms = mps_workers.sms_of(board, percent)
    configs = []
    for batch in sorted({min(size, service.batch) for size in BATCHES}):
        exec_s = service.latency_s(batch, sms)
        if exec_s <= (service.slo_s if batch == 1 else service.slo_s / 2):
            least_rps = 1.0 if batch == 1 else batch / (service.slo_s - exec_s)
            configs.append(_Config(percent, batch / exec_s, least_rps))
    return configs


POLICIES = (Infless(),)
