"""MIGRator: at every window's start, the plan with the highest goodput on the forecast.

`migrator` plans under the `survivors` charge: holding an instance early is the planner's choice.
`migrator-paper` is the paper's way: the plan is made as if every change cost the whole overhead,
then pre-initialization hands an instance to its tenant early where its slices are unused.
"""

from __future__ import annotations

from migrator.core.errors import SolverError
from migrator.core.instance import Instance, Kind, Task
from migrator.core.plan import Plan
from migrator.core.problem import Charge, Problem
from migrator.plan.preinit import preinitialize
from migrator.policies.equal_mig import equal_allocation
from migrator.policies.planning import planned
from migrator.policies.policy import Decision, Observation, Routing, Sharing, Sight


class Migrator:
    """The planner as a policy.

    Where the planner finds nothing in time, what is held stays; before anything is held, the
    board is split evenly.
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
    """Every instance that can be prepared is its tenant's from when its slices are unused."""
    early = [list(each) for each in slots]
    for each in preinitialize(problem, plan).preparations:
        instance = Instance(each.start, each.gpcs, Task(each.tenant, Kind.INFERENCE))
        for slot in range(each.from_slot, each.slot):
            early[slot].append(instance)
    return [tuple(sorted(each, key=lambda one: one.start)) for each in early]


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
)
