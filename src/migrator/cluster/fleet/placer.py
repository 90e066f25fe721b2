"""Placements while the cluster runs: with measured rates, on the GPUs that are up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from migrator.cluster.fleet.emergency import emergency_placement, room_for
from migrator.cluster.fleet.measured_rates import MeasuredRates, current_scenario
from migrator.cluster.scenario import ClusterPlan, ClusterScenario

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
