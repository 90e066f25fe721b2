"""Placements while the cluster runs: with measured rates, on the GPUs that are up.

Fallbacks for the loss of each GPU are computed in advance, so that recovery does not wait for a
search.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from migrator.cluster.fleet.messages import Report
from migrator.core.cluster import ClusterGpu, ClusterPlan, ClusterScenario, ClusterTenant
from migrator.core.scenario import ServedTenant, Trace
from migrator.workload.arrivals import fit_together, highest_rps, least_gpcs

NEVER = 1e6
"""Price of a move, in seconds of goodput, at which no placed tenant moves."""
MOST_THOUGHT_OF = 8
"""Number of GPUs above which fallbacks are not computed in advance."""
NICE = 10
PLACE_S = 5.0
"""Time limit of the search, in seconds."""


Question = tuple[ClusterScenario, dict[str, str]]
"""The current scenario, and tenant -> its current GPU."""
PlacementRunner = Callable[[Question], Awaitable[ClusterPlan]]


def compute_placement(question: Question) -> ClusterPlan:
    """Compute the best placement at low priority."""
    from migrator.cluster.placement.place import place  # a head never imports the planner

    if os.nice(0) < NICE:
        os.nice(NICE)
    scenario, current = question
    return place(scenario, current=current, seconds=PLACE_S)


async def place_in_thread(question: Question) -> ClusterPlan:
    """Compute the best placement in a thread of this process."""
    from migrator.cluster.placement.place import place

    scenario, current = question
    return await asyncio.to_thread(place, scenario, current=current, seconds=PLACE_S)


class Placer:
    """Finds placements for the head's event loop."""

    def __init__(self, scenario: ClusterScenario, aside: PlacementRunner = place_in_thread) -> None:
        """`aside`: computes placements outside the event loop."""
        self._scenario, self._aside = scenario, aside
        self.measured = MeasuredRates(scenario.window_s)
        self._thought_of: object = None
        self._fallbacks: dict[str, dict[str, str]] = {}

    async def place(
        self, gpus: Sequence[str], current: Mapping[str, str], move_s: float | None = None
    ) -> ClusterPlan:
        """Find the best placement on these GPUs; `move_s` overrides the price of a move."""
        now = current_scenario(self._scenario, gpus, self.measured.rates_rps(), move_s=move_s)
        return await self._aside((now, dict(current)))

    def is_prepared(self, homes: Mapping[str, str], alive: Collection[str]) -> bool:
        """Whether fallbacks are computed for this placement, or there are too many GPUs."""
        if len(set(homes.values())) > MOST_THOUGHT_OF:
            return True
        return self._thought_of == _situation(homes, alive)

    async def prepare_fallbacks(self, homes: Mapping[str, str], alive: Sequence[str]) -> None:
        """Compute new places for the tenants of each GPU, in case that GPU fails."""
        situation, found = _situation(homes, alive), {}
        for gone in dict.fromkeys(homes.values()):
            left = [each for each in alive if each != gone]
            kept = {name: gpu for name, gpu in homes.items() if gpu != gone}
            if left:
                found[gone] = await self._without(gone, homes, kept, left)
        self._thought_of, self._fallbacks = situation, found

    async def _without(
        self, gone: str, homes: Mapping[str, str], kept: Mapping[str, str], left: Sequence[str]
    ) -> dict[str, str]:
        """Where the tenants of `gone` would go; the other tenants stay."""
        plan = await self.place(left, kept, NEVER)
        if not plan.moved:
            return plan.placement
        # the remaining tenants would break a rule: move only the tenants that lost their GPU
        lost = [name for name, home in homes.items() if home == gone]
        return {**kept, **self.place_at_once(lost, kept, left)}

    def next_move(
        self, wanted: Mapping[str, str], homes: Mapping[str, str]
    ) -> tuple[str, str] | None:
        """The first of these moves that breaks no rule while it is made; None if there is none."""
        gpus = {each.name: each for each in self._scenario.gpus}
        for name, gpu in wanted.items():
            there = [each for each, home in homes.items() if home == gpu]
            if room_for(self._scenario, [*there, name], gpus[gpu]):
                return name, gpu
        return None

    def place_at_once(
        self, names: Sequence[str], homes: Mapping[str, str], alive: Collection[str]
    ) -> dict[str, str]:
        """Place these tenants on any GPUs with room; the other tenants stay."""
        return emergency_placement(
            current_scenario(self._scenario, alive, self.measured.rates_rps()), names, homes
        )

    def fallback(
        self, names: Sequence[str], homes: Mapping[str, str], alive: Collection[str]
    ) -> dict[str, str] | None:
        """The prepared placement of these tenants of one failed GPU; None: it must be searched.

        A fallback computed before another tenant moved could break a rule, so it is not used.
        """
        gone = {homes.get(each) for each in names}
        planned = self._fallbacks.get(gone.pop() or "") if len(gone) == 1 else None
        if planned is None or any(planned.get(each) not in alive for each in names):
            return None
        unchanged = all(planned.get(each) == homes[each] for each in homes if each not in names)
        return planned if unchanged else None


def _situation(homes: Mapping[str, str], alive: Collection[str]) -> object:
    return tuple(sorted(homes.items())), tuple(sorted(alive))


LEAST_RPS = 1.0
"""Minimum rate in requests per second: a tenant at 0 would be moved without a gain."""
FEWEST_S = 5.0
"""Minimum time over which a rate is measured, in seconds."""


class MeasuredRates:
    """Requests per second of every tenant over the last window, on all GPUs."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._before: dict[tuple[str, str], int] = {}
        self._total: dict[str, int] = {}
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def add(self, report: Report, now_s: float) -> None:
        """Add the counters of one GPU, which restart at 0 with its daemon."""
        for name, each in report.tenants.items():
            before = self._before.get((report.gpu, name), each.received)
            self._before[report.gpu, name] = each.received
            came = each.received - before if each.received >= before else each.received
            self._total[name] = self._total.get(name, 0) + came
            seen = self._seen.setdefault(name, deque())
            seen.append((now_s, self._total[name]))
            while len(seen) > 2 and seen[1][0] < now_s - self._window_s:
                seen.popleft()

    def rates_rps(self) -> dict[str, float]:
        """Rates of tenants that have been observed for long enough."""
        rates = {}
        for name, seen in self._seen.items():
            took_s = seen[-1][0] - seen[0][0]
            if took_s >= min(FEWEST_S, self._window_s):
                rates[name] = max(LEAST_RPS, (seen[-1][1] - seen[0][1]) / took_s)
        return rates


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
        gpus=tuple(each for each in scenario.gpus if each.name in gpus),
        tenants=tuple(_measured(each, rates_rps, scenario.window_s) for each in scenario.tenants),
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

    return replace(tenant, served={board: now(each) for board, each in tenant.served.items()})


def emergency_placement(
    scenario: ClusterScenario, names: Sequence[str], homes: Mapping[str, str]
) -> dict[str, str]:
    """Tenant -> GPU for tenants that fit; `homes` are the current GPUs of all other tenants.

    Units that must be together go together; the busiest go first, each to the least busy GPU.
    """
    living = dict(homes)
    tenants = {each.name: each for each in scenario.tenants}
    units = sorted(_units(scenario, names), key=lambda unit: -sum(_rps(tenants[e]) for e in unit))
    for unit in units:
        able = [each for each in scenario.gpus if _fits(scenario, unit, each, living)]
        if able:
            chosen = min(able, key=lambda gpu: _load(tenants, gpu, living))
            living |= dict.fromkeys(unit, chosen.name)
    return {name: living[name] for name in names if name in living}


def _units(scenario: ClusterScenario, names: Sequence[str]) -> list[list[str]]:
    """The names grouped by the rules of tenants that must be together."""
    group_of = {name: group for group in scenario.rules.together for name in group}
    units: dict[frozenset[str], list[str]] = {}
    for name in names:
        units.setdefault(group_of.get(name, frozenset((name,))), []).append(name)
    return list(units.values())


def room_for(scenario: ClusterScenario, names: Sequence[str], gpu: ClusterGpu) -> bool:
    """Whether these tenants may share the GPU and each has room for an instance."""
    board, here = gpu.board, [each for each in scenario.tenants if each.name in names]
    if any(len(group.intersection(names)) > 1 for group in scenario.rules.apart):
        return False
    sizes = [
        least_gpcs(each.served[board.name].service, board) if board.name in each.served else None
        for each in here
    ]
    needed = [size for size in sizes if size is not None]
    return len(needed) == len(here) and fit_together(needed, board)


def _fits(
    scenario: ClusterScenario,
    unit: Sequence[str],
    gpu: ClusterGpu,
    living: Mapping[str, str],
) -> bool:
    """Whether each tenant has room for an instance on the GPU and no rule is broken."""
    every = [*(name for name, home in living.items() if home == gpu.name), *unit]
    if not room_for(scenario, every, gpu):
        return False
    for group in scenario.rules.together:
        elsewhere = [e for e in group - set(every) if living.get(e) not in (None, gpu.name)]
        if group.intersection(unit) and elsewhere:
            return False
    return True


def _load(
    tenants: Mapping[str, ClusterTenant], gpu: ClusterGpu, living: Mapping[str, str]
) -> float:
    here = [tenants[name] for name, home in living.items() if home == gpu.name]
    return sum(
        _rps(each) / highest_rps(each.served[gpu.board.name].service, gpu.board) for each in here
    )


def _rps(tenant: ClusterTenant) -> float:
    served = next(iter(tenant.served.values()))
    return served.trace.mean_rps
