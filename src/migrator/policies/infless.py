"""INFless (ASPLOS'22): MPS, many small processes with their batch, scaled every second.

A process of `percent` of the SMs with batch b is feasible where a batch takes at most half the
objective (all of it for b = 1). It takes at most b / exec requests per second, and fills its
batches in time from b / (objective - exec) on. When more comes than the processes of a tenant
take, the most efficient feasible ones are added for the rest; when less comes than four fifths
of the way from the least to the most they take, processes are drained, as long as the others
still take everything. What a reconfiguration costs plays no part.

What is ours:
- Efficiency is requests per second and percent. The original divides it by what is left of the
  slot, to choose among many GPUs; with one GPU that would only favour the process that fills it
  up, so the most efficient one is taken, and the smallest of equals.
- The tenant with the smallest part of its rate covered is served first, one process at a time.
- A drained process lingers: it ends when the largest rate of the last five seconds could do
  without it. Five was chosen among 1 to 30 in this policy's favour, in trials on real traces.
- Every tenant keeps one process at least. Without history it needs what an equal part of the
  GPU for every task serves.
- A process that runs takes the batch that serves most on its share, as our workers do.
- Retrainings get what is left, in equal parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from migrator.core.catalogue import Board
from migrator.core.instance import Kind, Task
from migrator.core.service import Service
from migrator.core.share import Share
from migrator.policies import mps_workers
from migrator.policies.mps_workers import PerService
from migrator.policies.policy import Decision, Observation, Routing, Sharing, Sight, TenantView

PERCENTS = (10.0, 20.0, 30.0, 40.0, 50.0)
BATCHES = (1, 2, 4, 8, 16, 32)
LOAD_FACTOR = 0.8
LINGER_S = 5
"""A process is drained only if it was not needed in this many seconds."""


class Infless:
    """Processes come and go with the rate."""

    name = "infless"
    summary = "INFless: many small MPS processes, added and drained every second"
    sharing = Sharing.MPS
    sight = Sight.NOTHING
    routing = Routing.EARLIEST
    every_s: float | None = 1.0
    on_completion = True

    def decide(self, observation: Observation) -> Decision:
        """Drain what is too much, add what is missing, retrain on the rest."""
        held = _inference_held(observation)
        pools = [_pool(view, observation, held[view.name]) for view in observation.tenants]
        for pool in pools:
            pool.drain()
        _scale_up(pools)
        serving = [share for pool in pools for share in pool.shares]
        waiting = [view.name for view in observation.tenants if view.retraining]
        left = 100 - sum(share.percent for share in serving)
        training = [
            mps_workers.training(name, left / len(waiting)) for name in waiting if left > 1e-9
        ]
        return Decision(((*serving, *training),))


@dataclass(frozen=True)
class _Config:
    """A process of a size that takes batches of a size."""

    percent: float
    most_rps: float
    least_rps: float

    @property
    def efficiency(self) -> float:
        """Requests per second and percent, rounded so that equals are equal."""
        return round(self.most_rps / self.percent, 6)


@dataclass(frozen=True)
class _Menu:
    """A tenant's feasible configurations, the most efficient first, the smallest of equals."""

    service: Service
    board: Board
    configs: tuple[_Config, ...]
    running: dict[float, _Config]
    """Percent -> the configuration of a process that runs on it."""


@dataclass
class _Pool:
    """A tenant's processes."""

    tenant: str
    menu: _Menu
    rate_rps: float
    peak_rps: float
    """Of the last seconds."""
    shares: list[Share]

    @property
    def most_rps(self) -> float:
        """What the processes take at most."""
        return sum(self._config(each).most_rps for each in self.shares)

    @property
    def covered(self) -> float:
        """The part of the rate that they take."""
        return self.most_rps / self.rate_rps if self.rate_rps > 0 else math.inf

    def drain(self) -> None:
        """Too little comes: the least efficient go, while the others still take everything."""
        for share in sorted(self.shares, key=lambda each: self._config(each).efficiency):
            least_rps = sum(self._config(each).least_rps for each in self.shares)
            most_rps = self.most_rps
            if self.peak_rps >= least_rps + LOAD_FACTOR * (most_rps - least_rps):
                return
            if len(self.shares) > 1 and most_rps - self._config(share).most_rps >= self.peak_rps:
                self.shares.remove(share)

    def wanted(self, free_percent: float) -> _Config | None:
        """The next process for what is not covered; None: nothing is missing or fits."""
        residue_rps = self.rate_rps - self.most_rps
        fitting = (each for each in self.menu.configs if each.percent <= free_percent)
        return next((each for each in fitting if each.least_rps <= residue_rps), None)

    def add(self, percent: float) -> None:
        """Start one more."""
        taken = {each.number for each in self.shares}
        number = next(each for each in range(len(taken) + 1) if each not in taken)
        self.shares.append(Share(number, percent, Task(self.tenant, Kind.INFERENCE)))

    def _config(self, share: Share) -> _Config:
        return self.menu.running[share.percent]


def _scale_up(pools: list[_Pool]) -> None:
    """One process for every tenant, then one at a time to the tenant with the least coverage."""
    least_percent = min(PERCENTS[0], 100 / len(pools))
    for pool in pools:
        if not pool.shares:
            pool.menu.running.setdefault(least_percent, _at(pool.menu, least_percent))
            pool.add(least_percent)
    free = 100 - sum(share.percent for pool in pools for share in pool.shares)
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
    """The processes that serve now, as far as they leave room for tenants without any."""
    held: dict[str, list[Share]] = {view.name: [] for view in observation.tenants}
    room = 100 - PERCENTS[0] * len(held)
    for each in observation.held:
        if isinstance(each, Share) and _serves(each) and each.task.tenant in held:
            mine = held[each.task.tenant]
            needs = each.percent - (0 if mine else PERCENTS[0])
            if needs <= room + 1e-9:
                mine.append(each)
                room -= needs
    return held


def _serves(share: Share) -> bool:
    """Whether it is one of ours: of a size that this policy hands out."""
    return share.task.kind is Kind.INFERENCE and share.percent in PERCENTS and share.duty == 1


def _pool(view: TenantView, observation: Observation, shares: list[Share]) -> _Pool:
    menu = _menu(view.service, observation.board)
    seen_rps = _seen_rps(view, observation.slot_s)
    if not seen_rps:
        tasks = sum(1 + (each.retraining is not None) for each in observation.tenants)
        seen_rps = [menu.configs[0].efficiency * 100 / tasks if menu.configs else 0.0]
    return _Pool(view.name, menu, seen_rps[-1], max(seen_rps), shares)


def _seen_rps(view: TenantView, slot_s: float) -> list[float]:
    """The rates of the last seconds, or slots where those are longer; the newest is the last."""
    slots = max(1, round(1 / slot_s))
    newest = len(view.history)
    oldest = max(0, newest - max(1, round(LINGER_S / slot_s)))
    ends = range(newest, oldest, -slots)
    means = [float(view.history[max(0, end - slots) : end].mean()) for end in ends]
    return [mean / slot_s for mean in reversed(means)]


def _made(service: Service, board: Board) -> _Menu:
    feasible = {percent: _feasible(service, board, percent) for percent in PERCENTS}
    configs = sorted(
        (each for some in feasible.values() for each in some),
        key=lambda each: (-each.efficiency, each.percent, each.least_rps),
    )
    menu = _Menu(service, board, tuple(configs), {})
    menu.running.update({percent: _at(menu, percent) for percent in PERCENTS})
    return menu


_menu = PerService(_made)


def _at(menu: _Menu, percent: float) -> _Config:
    """The configuration that takes most on a share; none feasible: it takes nothing in time."""
    nothing = _Config(percent, 0.0, 0.0)
    feasible = _feasible(menu.service, menu.board, percent)
    return max(feasible, key=lambda each: each.most_rps, default=nothing)


def _feasible(service: Service, board: Board, percent: float) -> list[_Config]:
    """Every batch that keeps the objective on a share."""
    sms = mps_workers.sms_of(board, percent)
    found = []
    for batch in sorted({min(each, service.batch) for each in BATCHES}):
        exec_s = service.latency_s(batch, sms)
        if exec_s <= (service.slo_s if batch == 1 else service.slo_s / 2):
            least_rps = 1.0 if batch == 1 else batch / (service.slo_s - exec_s)
            found.append(_Config(percent, batch / exec_s, least_rps))
    return found


POLICIES = (Infless(),)
