"""Placements while the cluster runs: by measured rates, on the GPUs that are there.

Where everybody would go if a GPU went is thought out before it does, so that nobody waits for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from migrator.cluster.fleet.demand import Measured, standing
from migrator.cluster.fleet.refuge import refuge, room_for
from migrator.cluster.placement.place import place
from migrator.core.cluster import ClusterPlan, ClusterScenario

NEVER = 1e6
"""The price of a move, in seconds of goodput, at which nobody moves who has a home."""
MOST_THOUGHT_OF = 8
"""GPUs: with more of them, where to go is found when it is needed."""
NICE = 10
PLACE_S = 5.0
"""Nothing new is begun after so long when a placement is looked for."""


Question = tuple[ClusterScenario, dict[str, str]]
"""A scenario as it stands, and tenant -> GPU of now."""
Aside = Callable[[Question], Awaitable[ClusterPlan]]


def answered(question: Question) -> ClusterPlan:
    """The best placement, found gently: whoever serves beside it comes first."""
    if os.nice(0) < NICE:
        os.nice(NICE)
    scenario, current = question
    return place(scenario, current=current, seconds=PLACE_S)


async def in_a_thread(question: Question) -> ClusterPlan:
    """The same beside the event loop of this process, which it slows down."""
    scenario, current = question
    return await asyncio.to_thread(place, scenario, current=current, seconds=PLACE_S)


class Placer:
    """Finds placements; for the head's event loop."""

    def __init__(self, scenario: ClusterScenario, aside: Aside = in_a_thread) -> None:
        """`aside`: answers elsewhere."""
        self._scenario, self._aside = scenario, aside
        self.measured = Measured(scenario.window_s)
        self._thought_of: object = None
        self._fallbacks: dict[str, dict[str, str]] = {}

    async def placed(
        self, gpus: Sequence[str], current: Mapping[str, str], move_s: float | None = None
    ) -> ClusterPlan:
        """The best placement on these GPUs; `move_s`: another price of a move."""
        now = standing(self._scenario, gpus, self.measured.rates_rps(), move_s=move_s)
        return await self._aside((now, dict(current)))

    def knows(self, homes: Mapping[str, str], alive: Collection[str]) -> bool:
        """Whether it was thought out what to do if one of these went, or would take too long."""
        if len(set(homes.values())) > MOST_THOUGHT_OF:
            return True
        return self._thought_of == _situation(homes, alive)

    async def look_ahead(self, homes: Mapping[str, str], alive: Sequence[str]) -> None:
        """Think it out."""
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
        """Where whoever lived on `gone` would go, the others staying where they are."""
        plan = await self.placed(left, kept, NEVER)
        if not plan.moved:
            return plan.placement
        # those who stay would break its rules: only who has lost its home is to be moved
        lost = [name for name, home in homes.items() if home == gone]
        return {**kept, **self.refuge(lost, kept, left)}

    def next_move(
        self, wanted: Mapping[str, str], homes: Mapping[str, str]
    ) -> tuple[str, str] | None:
        """The first of these moves that breaks no rule while it is made; None: there is none."""
        gpus = {each.name: each for each in self._scenario.gpus}
        for name, gpu in wanted.items():
            there = [each for each, home in homes.items() if home == gpu]
            if room_for(self._scenario, [*there, name], gpus[gpu]):
                return name, gpu
        return None

    def refuge(
        self, names: Sequence[str], homes: Mapping[str, str], alive: Collection[str]
    ) -> dict[str, str]:
        """Where these go at once; nobody else moves."""
        return refuge(standing(self._scenario, alive, self.measured.rates_rps()), names, homes)

    def thought_out(
        self, names: Sequence[str], homes: Mapping[str, str], alive: Collection[str]
    ) -> dict[str, str] | None:
        """Where these go, all of which lived on one GPU that failed; None: it must be searched.

        A fallback that was computed before another tenant moved could break a rule: it is not used.
        """
        gone = {homes.get(each) for each in names}
        planned = self._fallbacks.get(gone.pop() or "") if len(gone) == 1 else None
        if planned is None or any(planned.get(each) not in alive for each in names):
            return None
        unchanged = all(planned.get(each) == homes[each] for each in homes if each not in names)
        return planned if unchanged else None


def _situation(homes: Mapping[str, str], alive: Collection[str]) -> object:
    return tuple(sorted(homes.items())), tuple(sorted(alive))
