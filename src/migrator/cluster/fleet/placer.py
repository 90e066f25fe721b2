"""Placements while the cluster runs: with measured rates, on the GPUs that are up.

Fallbacks for the loss of each GPU are computed in advance, so that recovery does not wait for a
search.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from migrator.cluster.fleet.emergency import emergency_placement, room_for
from migrator.cluster.fleet.measured_rates import MeasuredRates, current_scenario
from migrator.cluster.scenario import ClusterPlan, ClusterScenario

NEVER = 1e6
"""Price of a move, in seconds of goodput, at which no placed tenant moves."""
MOST_PREPARED = 8
"""Number of GPUs above which fallbacks are not computed in advance."""
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


class Placer:
    """Finds placements for the head's event loop."""

    def __init__(
        self, scenario: ClusterScenario, run_placement: PlacementRunner = place_in_thread
    ) -> None:
        """`run_placement`: computes placements outside the event loop."""
        self._scenario, self._run_placement = scenario, run_placement
        self.measured = MeasuredRates(scenario.window_s)
        self._prepared_for: object = None
        self._fallbacks: dict[str, dict[str, str]] = {}

    async def place(
        self, gpus: Sequence[str], current: Mapping[str, str], move_s: float | None = None
    ) -> ClusterPlan:
        """Find the best placement on these GPUs; `move_s` overrides the price of a move."""
        measured = current_scenario(self._scenario, gpus, self.measured.rates_rps(), move_s=move_s)
        return await self._run_placement((measured, dict(current)))

    def is_prepared(self, homes: Mapping[str, str], alive: Collection[str]) -> bool:
        """Whether fallbacks are computed for this placement, or there are too many GPUs."""
        if len(set(homes.values())) > MOST_PREPARED:
            return True
        return self._prepared_for == _situation(homes, alive)

    async def prepare_fallbacks(self, homes: Mapping[str, str], alive: Sequence[str]) -> None:
        """Compute new places for the tenants of each GPU, in case that GPU fails."""
        situation, fallbacks = _situation(homes, alive), {}
        for lost_gpu in dict.fromkeys(homes.values()):
            remaining = [gpu for gpu in alive if gpu != lost_gpu]
            if remaining:
                fallbacks[lost_gpu] = await self._without(lost_gpu, homes, remaining)
        self._prepared_for, self._fallbacks = situation, fallbacks

    async def _without(
        self, lost_gpu: str, homes: Mapping[str, str], remaining: Sequence[str]
    ) -> dict[str, str]:
        """Where the tenants of `lost_gpu` would go; the other tenants stay."""
        staying = {name: gpu for name, gpu in homes.items() if gpu != lost_gpu}
        plan = await self.place(remaining, staying, NEVER)
        if not plan.moved:
            return plan.placement
        # the remaining tenants would break a rule: move only the tenants that lost their GPU
        lost = [name for name, home in homes.items() if home == lost_gpu]
        return {**staying, **self.place_at_once(lost, staying, remaining)}

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

    def fallback(
        self, names: Sequence[str], homes: Mapping[str, str], alive: Collection[str]
    ) -> dict[str, str] | None:
        """The prepared placement of these tenants of one failed GPU; None: it must be searched.

        A fallback computed before another tenant moved could break a rule, so it is not used.
        """
        gpus = {homes.get(name) for name in names}
        planned = self._fallbacks.get(gpus.pop() or "") if len(gpus) == 1 else None
        if planned is None or any(planned.get(name) not in alive for name in names):
            return None
        unchanged = all(planned.get(home) == homes[home] for home in homes if home not in names)
        return planned if unchanged else None


def _situation(homes: Mapping[str, str], alive: Collection[str]) -> object:
    return tuple(sorted(homes.items())), tuple(sorted(alive))
