"""MIGRator that plans again inside the window, as arrivals are seen.

At the window's start it plans like `migrator`. The retrainings stay as planned; every few
seconds the inference around them is planned again on what came just now (`forecast/nowcast`),
a short stretch ahead. There is no threshold for a change: what a new instance costs while it is
cold is part of every plan, so what is held is left only where leaving it pays.
"""

from __future__ import annotations

from dataclasses import replace

from migrator.core.errors import SolverError
from migrator.core.instance import Instance
from migrator.core.problem import Charge
from migrator.forecast.nowcast import Nowcast
from migrator.plan.survivors.replan import Scenarios, replan
from migrator.policies.migrator import Migrator
from migrator.policies.policy import Decision, Observation, Sight

HORIZON_S = 30.0
"""How far a replan looks: beyond it the recent past says nothing."""
OVERHEADS = 5.0
"""Where starts are slow it looks so many of them ahead, or none would ever pay."""


class Replanned(Migrator):
    """The window's plan, its inference planned again every `every_s` seconds."""

    def __init__(self, name: str, summary: str, every_s: float) -> None:
        super().__init__(name, summary, Sight.START, Charge.SURVIVORS)
        self.every_s: float | None = every_s
        self._nowcast = Nowcast()

    def decide(self, observation: Observation) -> Decision:
        """The window's plan at its start, then the inference again around its retrainings."""
        last = observation.decided
        if observation.slot == 0:
            return super().decide(observation)
        if last is None or not _as_planned(observation, last):
            return super().decide(self._foreseen(observation))
        assert last.plan is not None
        assert last.problem is not None
        held = [each for each in observation.held if isinstance(each, Instance)]
        cold_s = dict(zip(held, observation.cold_s, strict=False))
        try:
            found = replan(
                last.problem,
                last.plan,
                observation.slot - last.begin,
                self._ahead(observation),
                tuple(held),
                cold_slots={each: left / observation.slot_s for each, left in cold_s.items()},
                again_in=max(1, round((self.every_s or 0) / observation.slot_s)),
            )
        except SolverError:
            return replace(last, slots=(observation.held,))
        return replace(last, slots=tuple(each.instances for each in found))

    def _ahead(self, observation: Observation) -> dict[str, Scenarios]:
        slowest_s = max(view.overhead_s for view in observation.tenants)
        slots = round(max(HORIZON_S, OVERHEADS * slowest_s) / observation.slot_s)
        slots = min(observation.slots_left, max(2, slots))
        return {
            view.name: tuple(
                tuple(map(float, row))
                for row in self._nowcast.ahead(view.history, slots, observation.slots)
            )
            for view in observation.tenants
        }

    def _foreseen(self, observation: Observation) -> Observation:
        """With what is ahead of the rest of the window, for a plan of all of it."""
        tenants = (
            replace(
                view,
                ahead=self._nowcast.ahead(view.history, observation.slots_left, observation.slots),
            )
            for view in observation.tenants
        )
        return replace(observation, tenants=tuple(tenants))


def _as_planned(observation: Observation, last: Decision) -> bool:
    """Whether there is a plan to the window's end, and its retrainings are where it says."""
    if last.plan is None or last.problem is None:
        return False
    if last.begin + last.problem.slots != observation.slots:
        return False
    now = observation.slot - last.begin
    running = {each.tenant for each in last.plan.retrainings if each.end > now}
    return all(
        view.name in running
        for view in observation.tenants
        if view.retraining is not None and view.retraining.holding is not None
    )


POLICIES = (
    Replanned(
        "migrator-replanned",
        "migrator that plans the inference again every 2 s on what came just now",
        2.0,
    ),
)
