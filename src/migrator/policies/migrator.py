"""MIGRator: at every window's start, the plan with the highest goodput on the forecast.

`migrator` plans under the `survivors` charge: the planner chooses when to create an instance early
and which tenants to retrain. Within the window it plans the inference again as requests arrive
unless recent arrivals rule out that this pays, and everything if a retraining ends early or late.
`migrator-paper` works as in the paper: it retrains every tenant in every window and plans as if
every change cost the whole overhead; then pre-initialization gives an instance to its tenant early
if its slices are unused.
`migrator-replanned` always plans the inference again, `migrator-required` retrains every tenant and
never replans. `oracle` and `oracle-required` plan on the true arrivals: upper bounds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import SolverError
from migrator.core.problem import Charge, Instance, Kind, Plan, Problem, Task
from migrator.forecast.nowcast import Nowcast
from migrator.plan.solve import preinitialize
from migrator.policies.fixed_shares import equal_allocation
from migrator.policies.planning import planned
from migrator.policies.policy import Decision, Observation, Policy, Sight, TenantView

Floats = NDArray[np.float64]

HORIZON_S = 30.0
"""Horizon of a replan in seconds: beyond it the recent past says nothing."""
REPLAN_S = 1.0
"""Seconds between replans. Arrivals are counted per slot, so a burst is known a slot after it began
at the earliest; every further second until the replan is lost as well."""
OVERHEADS = 5.0
"""Minimum horizon in overheads: with slow starts and a shorter horizon no change would pay off."""
_SKILL, _DOUBT = 0.1, 2.0
"""Share of the error of the last window's mean that a nowcast must remove to replan on it, and the
standard errors by which it must be missed to rule that out. Replanning on noise costs next to
nothing; a burst that is not followed costs a lot, and bursts are rare in what was measured."""
_EARLY = 1
"""Slots before its planned end at which a completed retraining is worth a new plan."""


class Migrator(Policy):
    """The planner as a policy: one plan per window.

    If the planner finds no plan in time, the layout stays. Before the first layout the board is
    split evenly.
    """

    on_completion = False

    def __init__(
        self, name: str, summary: str, sight: Sight, charge: Charge, *, optional: bool = False
    ) -> None:
        """`optional`: plans may leave out retrainings that do not pay."""
        self.name = name
        self.summary = summary
        self.sight = sight
        self.estimates = sight is not Sight.TRUTH  # an oracle knows the accuracy
        self.charge = charge
        self.lends = charge is Charge.SURVIVORS  # the paper's slices serve one tenant
        self.optional = optional

    def decide(self, observation: Observation) -> Decision:
        """The plan of the rest of the window."""
        try:
            problem, plan = planned(observation, self.charge, optional=self.optional)
        except SolverError:
            return Decision((observation.held or equal_allocation(observation),))
        slots = [_used(each.instances) for each in plan.slots]
        if self.charge is Charge.PAPER:
            slots = _prepared_early(problem, plan, slots)
        return Decision(tuple(slots), problem, plan, observation.slot)


def _used(instances: tuple[Instance, ...]) -> tuple[Instance, ...]:
    return tuple(each for each in instances if each.task is not None)


def _prepared_early(
    problem: Problem, plan: Plan, slots: list[tuple[Instance, ...]]
) -> list[tuple[Instance, ...]]:
    """Give every instance that can be prepared to its tenant as soon as its slices are unused."""
    early = [list(each) for each in slots]
    for each in preinitialize(problem, plan).preparations:
        instance = Instance(each.start, each.gpcs, Task(each.tenant, Kind.INFERENCE))
        for slot in range(each.from_slot, each.slot):
            early[slot].append(instance)
    return [tuple(sorted(each, key=lambda one: one.start)) for each in early]


class Replanned(Migrator):
    """The window's plan, planned again within the window.

    Every `every_s` seconds the inference, if `always` or if that would have paid lately. All of
    it if a retraining is not where the plan has it.
    """

    on_completion = True

    def __init__(self, name: str, summary: str, every_s: float, *, always: bool) -> None:
        super().__init__(name, summary, Sight.START, Charge.SURVIVORS, optional=True)
        self.every_s: float | None = every_s
        self.always = always
        self._nowcast = Nowcast()

    def decide(self, observation: Observation) -> Decision:
        """The window's plan at its start, later what is to be planned again."""
        last = observation.decided
        if observation.slot == 0:
            pays = self.always or self._pays(observation)
            return replace(super().decide(observation), replan=pays)
        if last is None or not _as_planned(observation, last):
            pays = last.replan if last is not None else self.always
            return replace(super().decide(self._foreseen(observation, last)), replan=pays)
        assert last.plan is not None
        if not last.replan:
            rest = last.plan.slots[observation.slot - last.begin :]
            return replace(last, slots=tuple(_used(each.instances) for each in rest))
        return self._replanned(observation, last)

    def _replanned(self, observation: Observation, last: Decision) -> Decision:
        """The inference planned again around the plan's retrainings."""
        from migrator.plan.survivors.fixed_schedule import (
            replan,  # imports numba, which takes 0.3 s
        )

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

    def _pays(self, observation: Observation) -> bool:
        """Whether the last seconds may say more about the next ones than the last window does."""
        horizon = self._horizon(observation)
        found = [
            self._nowcast.skill(view.history, horizon, observation.slots)
            for view in observation.tenants
        ]
        return any(each.share + _DOUBT * each.error > _SKILL for each in found)

    def _horizon(self, observation: Observation) -> int:
        """Slots that a replan looks ahead."""
        slowest_s = max(view.overhead_s for view in observation.tenants)
        slots = round(max(HORIZON_S, OVERHEADS * slowest_s) / observation.slot_s)
        return min(observation.slots_left, max(2, slots))

    def _ahead(self, observation: Observation) -> dict[str, tuple[tuple[float, ...], ...]]:
        slots = self._horizon(observation)
        return {
            view.name: tuple(
                map(tuple, self._nowcast.ahead(view.history, slots, observation.slots).tolist())
            )
            for view in observation.tenants
        }

    def _foreseen(self, observation: Observation, last: Decision | None) -> Observation:
        """The observation with a forecast of the rest of the window: that of its start, if known.

        The last seconds say nothing about minutes ahead; plans on a nowcast of all of them
        followed its noise.
        """
        known = _forecast_left(observation, last)
        tenants = (
            replace(view, ahead=known.get(view.name, self._nowcast_left(observation, view)))
            for view in observation.tenants
        )
        return replace(observation, tenants=tuple(tenants))

    def _nowcast_left(self, observation: Observation, view: TenantView) -> Floats:
        return self._nowcast.ahead(view.history, observation.slots_left, observation.slots)


def _forecast_left(observation: Observation, last: Decision | None) -> dict[str, Floats]:
    """Per tenant, the forecast that the last plan was made on, from now on; empty if it ends
    before the window does."""
    problem = None if last is None else last.problem
    if last is None or problem is None or last.begin + problem.slots != observation.slots:
        return {}
    now = observation.slot - last.begin
    return {each.name: np.array(each.received)[:, now:] for each in problem.tenants}


def _as_planned(observation: Observation, last: Decision) -> bool:
    """Whether there is a plan to the window's end and its retrainings run as planned."""
    if last.plan is None or last.problem is None:
        return False
    if last.begin + last.problem.slots != observation.slots:
        return False
    now = observation.slot - last.begin
    due = {
        each.tenant: each.end - now
        for each in last.plan.retrainings
        if each.start < now and each.end > now
    }
    running = {
        view.name
        for view in observation.tenants
        if view.retraining is not None and view.retraining.holding is not None
    }
    done = {view.name for view in observation.tenants if view.retraining is None}
    if any(left > _EARLY for name, left in due.items() if name in done):
        return False
    return running <= {each.tenant for each in last.plan.retrainings if each.end > now}


POLICIES = (
    Replanned(
        "migrator",
        "plans every window on the forecast for the highest goodput, and again where that pays",
        REPLAN_S,
        always=False,
    ),
    Migrator(
        "migrator-paper",
        "as the paper: its charge, pre-initialization, every tenant retrained in every window",
        Sight.FORECAST,
        Charge.PAPER,
    ),
    Migrator(
        "migrator-required",
        "one plan per window that retrains every tenant",
        Sight.FORECAST,
        Charge.SURVIVORS,
    ),
    Migrator(
        "migrator-once",
        "one plan per window that retrains the tenants for which it pays",
        Sight.FORECAST,
        Charge.SURVIVORS,
        optional=True,
    ),
    Replanned(
        "migrator-replanned",
        "migrator that plans the inference again every second on what came just now",
        REPLAN_S,
        always=True,
    ),
    Migrator(
        "oracle",
        "plans every window on the arrivals to come",
        Sight.TRUTH,
        Charge.SURVIVORS,
        optional=True,
    ),
    Migrator(
        "oracle-required",
        "oracle that retrains every tenant in every window",
        Sight.TRUTH,
        Charge.SURVIVORS,
    ),
)
