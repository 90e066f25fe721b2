"""MIGRator that plans again inside the window, as arrivals are seen.

At the window's start it plans like `migrator`. The retrainings stay as planned; every few
seconds the inference around them is planned again on what came just now (`forecast/nowcast`),
a short stretch ahead. There is no threshold for a change: what a new instance costs while it is
cold is part of every plan, so what is held is left only where leaving it pays.
"""

from __future__ import annotations

from migrator.core.errors import SolverError
from migrator.core.instance import Instance
from migrator.core.problem import Charge
from migrator.forecast.nowcast import Nowcast
from migrator.plan.survivors.replan import replan
from migrator.policies.migrator import Migrator
from migrator.policies.policy import Decision, Observation, Sight

HORIZON_S = 30.0
"""How far a replan looks: beyond it the recent past says nothing."""


class Replanned(Migrator):
    """The window's plan, its inference planned again every `every_s` seconds."""

    def __init__(self, name: str, summary: str, every_s: float) -> None:
        super().__init__(name, summary, Sight.FORECAST, Charge.SURVIVORS)
        self.every_s: float | None = every_s
        self._nowcast = Nowcast()

    def decide(self, observation: Observation) -> Decision:
        """The window's plan at its start, then the inference again around its retrainings."""
        last = observation.decided
        if observation.slot == 0 or last is None or not _as_planned(observation, last):
            return super().decide(observation)
        assert last.plan is not None
        assert last.problem is not None
        slots = min(observation.slots_left, max(2, round(HORIZON_S / observation.slot_s)))
        ahead = {
            view.name: tuple(
                tuple(map(float, row))
                for row in self._nowcast.ahead(view.history, slots, observation.slots)
            )
            for view in observation.tenants
        }
        held = tuple(each for each in observation.held if isinstance(each, Instance))
        try:
            found = replan(last.problem, last.plan, observation.slot, ahead, held)
        except SolverError:
            return Decision((observation.held,), last.problem, last.plan)
        return Decision(tuple(each.instances for each in found), last.problem, last.plan)


def _as_planned(observation: Observation, last: Decision) -> bool:
    """Whether there is a plan of the whole window, and its retrainings are where it says."""
    if last.plan is None or last.problem is None or last.problem.slots != observation.slots:
        return False
    running = {each.tenant for each in last.plan.retrainings if each.end > observation.slot}
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
