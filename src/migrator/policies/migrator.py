"""MIGRator: at every window's start, the plan with the highest goodput on the forecast.

`migrator` plans under the `survivors` charge: the planner chooses when to create an instance early.
`migrator-paper` works as in the paper: it plans as if every change cost the whole overhead, then
pre-initialization gives an instance to its tenant early if its slices are unused.
`migrator-replanned` plans the inference again within the window, as requests arrive. `oracle` plans
on the true arrivals: an upper bound for the others.
"""

from __future__ import annotations

from dataclasses import replace

from migrator.core.errors import SolverError
from migrator.core.instance import Instance, Kind, Task
from migrator.core.plan import Plan
from migrator.core.problem import Charge, Problem
from migrator.forecast.nowcast import Nowcast
from migrator.plan.preinit import preinitialize
from migrator.plan.survivors.replan import Scenarios, replan
from migrator.policies.equal_shares import equal_allocation
from migrator.policies.planning import planned
from migrator.policies.policy import Decision, Observation, Routing, Sharing, Sight

HORIZON_S = 30.0
"""Horizon of a replan in seconds: beyond it the recent past says nothing."""
OVERHEADS = 5.0
"""Minimum horizon in overheads: with slow starts and a shorter horizon no change would pay off."""


class Migrator:
    """The planner as a policy.

    If the planner finds no plan in time, the layout stays. Before the first layout the board is
    split evenly.
    """

    sharing = Sharing.MIG
    routing = Routing.EARLIEST
    every_s: float | None = None
    on_completion = False

    def __init__(self, name: str, summary: str, sight: Sight, charge: Charge) -> None:
        self.name = name
        self.summary = summary
        self.sight = sight
        self.charge = charge

    def decide(self, observation: Observation) -> Decision:
        """The plan of the rest of the window."""
        try:
            problem, plan = planned(observation, self.charge)
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
    """The window's plan, with its inference planned again every `every_s` seconds."""

    def __init__(self, name: str, summary: str, every_s: float) -> None:
        super().__init__(name, summary, Sight.START, Charge.SURVIVORS)
        self.every_s: float | None = every_s
        self._nowcast = Nowcast()

    def decide(self, observation: Observation) -> Decision:
        """The window's plan at its start, later the inference planned again around its
        retrainings."""
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
        """The observation with a forecast of the rest of the window."""
        tenants = (
            replace(
                view,
                ahead=self._nowcast.ahead(view.history, observation.slots_left, observation.slots),
            )
            for view in observation.tenants
        )
        return replace(observation, tenants=tuple(tenants))


def _as_planned(observation: Observation, last: Decision) -> bool:
    """Whether there is a plan to the window's end and its retrainings run as planned."""
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
    Migrator(
        "migrator",
        "plans every window on the forecast for the highest goodput",
        Sight.FORECAST,
        Charge.SURVIVORS,
    ),
    Migrator(
        "migrator-paper",
        "the same with the paper's charge and its pre-initialization",
        Sight.FORECAST,
        Charge.PAPER,
    ),
    Replanned(
        "migrator-replanned",
        "migrator that plans the inference again every 2 s on what came just now",
        2.0,
    ),
    Migrator(
        "oracle",
        "migrator that knows the arrivals to come",
        Sight.TRUTH,
        Charge.SURVIVORS,
    ),
)
