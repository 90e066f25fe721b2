"""Placements while the cluster runs: with measured rates, on the GPUs that are up.

A search computes the best placement; lost tenants first go wherever they fit by mean rates.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from migrator.cluster.fleet.messages import Report
from migrator.cluster.scenario import ClusterGpu, ClusterPlan, ClusterScenario, ClusterTenant
from migrator.core.scenario import ServedTenant, Trace
from migrator.workload.capacity import fit_together, highest_rps, least_gpcs

LEAST_RPS = 1.0
"""Minimum rate in requests per second: a tenant at 0 would be moved without a gain."""
FEWEST_S = 5.0
"""Minimum time over which a rate is measured, in seconds."""
NEVER = 1e6
"""Price of a move, in seconds of goodput, at which no placed tenant moves."""
NICE = 10
PLACE_S = 5.0
"""Time limit of the search, in seconds."""
PlacementRequest = tuple[ClusterScenario, dict[str, str]]
"""The current scenario, and tenant -> its current GPU."""
PlacementRunner = Callable[[PlacementRequest], Awaitable[ClusterPlan]]


def compute_placement(request: PlacementRequest) -> ClusterPlan:
    """Compute the best placement at low priority."""
    from migrator.cluster.placement.place import place  # a head never imports the planner

    if os.nice(0) < NICE:
        os.nice(NICE)
    scenario, current = request
    return place(scenario, current=current, seconds=PLACE_S)


async def place_in_thread(request: PlacementRequest) -> ClusterPlan:
    """Compute the best placement in a thread of this process."""
    from migrator.cluster.placement.place import place

    scenario, current = request
    return await asyncio.to_thread(place, scenario, current=current, seconds=PLACE_S)


class MeasuredRates:
    """Requests per second of every tenant over the last window, on all GPUs."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._before: dict[tuple[str, str], int] = {}
        self._total: dict[str, int] = {}
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def add(self, report: Report, now_s: float) -> None:
        """Add the counters of one GPU, which restart at 0 with its daemon."""
        for name, tenant in report.tenants.items():
            before = self._before.get((report.gpu, name), tenant.received)
            self._before[report.gpu, name] = tenant.received
            came = tenant.received - before if tenant.received >= before else tenant.received
            self._total[name] = self._total.get(name, 0) + came
            samples = self._seen.setdefault(name, deque())
            samples.append((now_s, self._total[name]))
            while len(samples) > 2 and samples[1][0] < now_s - self._window_s:
                samples.popleft()

    def rates_rps(self) -> dict[str, float]:
        """Rates of tenants that have been observed for long enough."""
        rates = {}
        for name, samples in self._seen.items():
            took_s = samples[-1][0] - samples[0][0]
            if took_s >= min(FEWEST_S, self._window_s):
                rates[name] = max(LEAST_RPS, (samples[-1][1] - samples[0][1]) / took_s)
        return rates


class Placer:
    """Finds placements for the head's event loop."""

    def __init__(
        self, scenario: ClusterScenario, run_placement: PlacementRunner = place_in_thread
    ) -> None:
        """`run_placement`: computes placements outside the event loop."""
        self._scenario, self._run_placement = scenario, run_placement
        self.measured = MeasuredRates(scenario.window_s)

    async def place(
        self, gpus: Sequence[str], current: Mapping[str, str], move_s: float | None = None
    ) -> ClusterPlan:
        """Find the best placement on these GPUs; `move_s` overrides the price of a move."""
        measured = current_scenario(self._scenario, gpus, self.measured.rates_rps(), move_s=move_s)
        return await self._run_placement((measured, dict(current)))

    def next_move(
        self, wanted: Mapping[str, str], homes: Mapping[str, str]
    ) -> tuple[str, str] | None:
        """The first of these moves that breaks no rule while it is made; None if there is none."""
        gpus = {gpu.name: gpu for gpu in self._scenario.gpus}
        for name, gpu in wanted.items():
            tenants = [tenant for tenant, home in homes.items() if home == gpu]
            if room_for(self._scenario, [*tenants, name], gpus[gpu]):
                return name, gpu
        return None

    def place_at_once(
        self, names: Sequence[str], homes: Mapping[str, str], alive: Collection[str]
    ) -> dict[str, str]:
        """Place these tenants on any GPUs with room; the other tenants stay."""
        return emergency_placement(
            current_scenario(self._scenario, alive, self.measured.rates_rps()), names, homes
        )


def current_scenario(
    scenario: ClusterScenario,
    gpus: Collection[str],
    rates_rps: Mapping[str, float],
    *,
    move_s: float | None = None,
) -> ClusterScenario:
    """The scenario with these GPUs and rates; `move_s` overrides the price of a move."""
    rules = scenario.rules if move_s is None else replace(scenario.rules, move_s=move_s)
    return replace(
        scenario,
        gpus=tuple(gpu for gpu in scenario.gpus if gpu.name in gpus),
        tenants=tuple(
            _measured(tenant, rates_rps, scenario.window_s) for tenant in scenario.tenants
        ),
        rules=rules,
    )


def _measured(
    tenant: ClusterTenant, rates_rps: Mapping[str, float], window_s: float
) -> ClusterTenant:
    rate_rps = rates_rps.get(tenant.name)
    if rate_rps is None:
        return tenant
    seconds = round(window_s)
    total = np.floor(np.arange(1, 2 * seconds + 1) * rate_rps + 0.5).astype(np.int64)
    trace = Trace("measured", np.diff(total, prepend=0))

    def now(served: ServedTenant) -> ServedTenant:
        return replace(served, trace=trace, offset_s=seconds)

    return replace(tenant, served={board: now(served) for board, served in tenant.served.items()})


def emergency_placement(
    scenario: ClusterScenario, names: Sequence[str], homes: Mapping[str, str]
) -> dict[str, str]:
    """Tenant -> GPU for tenants that fit; `homes` are the current GPUs of all other tenants.

    The busiest tenants go first, each to the least busy GPU.
    """
    placed = dict(homes)
    tenants = {tenant.name: tenant for tenant in scenario.tenants}
    for name in sorted(names, key=lambda name: -_rps(tenants[name])):
        sharing = {
            gpu: [other for other, home in placed.items() if home == gpu.name]
            for gpu in scenario.gpus
        }
        able = [gpu for gpu in sharing if room_for(scenario, [*sharing[gpu], name], gpu)]
        if able:
            chosen = min(able, key=lambda gpu: _load([tenants[n] for n in sharing[gpu]], gpu))
            placed[name] = chosen.name
    return {name: placed[name] for name in names if name in placed}


def room_for(scenario: ClusterScenario, names: Sequence[str], gpu: ClusterGpu) -> bool:
    """Whether these tenants may share the GPU and each has room for an instance."""
    board = gpu.board
    if any(len(group.intersection(names)) > 1 for group in scenario.rules.apart):
        return False
    needed = []
    for tenant in scenario.tenants:
        if tenant.name in names:
            served = tenant.served.get(board.name)
            size = None if served is None else least_gpcs(served.service, board)
            if size is None:
                return False
            needed.append(size)
    return fit_together(needed, board)


def _load(tenants: Sequence[ClusterTenant], gpu: ClusterGpu) -> float:
    """The part of the GPU that these tenants keep busy, by mean rates."""
    return sum(
        _rps(tenant) / highest_rps(tenant.served[gpu.board.name].service, gpu.board)
        for tenant in tenants
    )


def _rps(tenant: ClusterTenant) -> float:
    return next(iter(tenant.served.values())).trace.mean_rps
