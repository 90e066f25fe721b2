"""Where the instances of an ILP's solution lie, and what a plan holds in every slot."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache

from migrator.core.catalogue import (
    Board,
    Multiset,
    Placement,
    PlacementSet,
    find_placement,
    multiset_of,
    placement_sets,
)
from migrator.core.errors import PlanError, SolverError
from migrator.core.problem import Allocation, Instance, Kind, Plan, Problem, Task

Holding = dict[Placement, Task]
"""What every used placement of one slot holds."""


@dataclass(frozen=True)
class Demand:
    """One slot without places: sizes per inference task, places of running retrainings."""

    inference: dict[Task, Multiset]
    retraining: dict[Task, Placement]


def lay_out(board: Board, demand: Demand, before: Holding) -> Holding:
    """Places for one slot's instances that leave as many as possible where they were.

    Charge `paper` lets inference move for free, but a plan that moves nothing without need
    is easier to read and to act on. Deterministic: the first of the best placement sets.
    """
    fixed = frozenset(demand.retraining.values())
    sizes = [size for pattern in demand.inference.values() for size in pattern]
    wanted = tuple(sorted([*sizes, *(place.gpcs for place in fixed)], reverse=True))
    layouts = [
        _assign(sorted(set(chosen) - fixed), demand, before)
        for chosen in _by_multiset(board).get(wanted, ())
        if fixed.issubset(chosen)
    ]
    if not layouts:
        raise SolverError(
            "the solver's answer cannot be laid on the slices although its rows ask for it; "
            "report the problem file, and use --solver exact meanwhile"
        )
    return max(layouts, key=lambda holding: len(holding.items() & before.items()))


@cache
def _by_multiset(board: Board) -> dict[Multiset, list[PlacementSet]]:
    by_multiset: defaultdict[Multiset, list[PlacementSet]] = defaultdict(list)
    for chosen in placement_sets(board):
        by_multiset[multiset_of(chosen)].append(chosen)
    return dict(by_multiset)


def _assign(free: list[Placement], demand: Demand, before: Holding) -> Holding:
    """`free` placements to tasks by size; a tenant that held one before gets it first."""
    holding: Holding = {where: task for task, where in demand.retraining.items()}
    needs = {task: Counter(pattern) for task, pattern in demand.inference.items()}

    def give(where: Placement, task: Task) -> None:
        holding[where] = task
        needs[task][where.gpcs] -= 1

    for where in free:
        owner = before.get(where)
        if owner is not None and owner in needs and needs[owner][where.gpcs] > 0:
            give(where, owner)
    for where in free:
        if where not in holding:
            give(where, next(task for task in needs if needs[task][where.gpcs] > 0))
    return holding


def allocation_of(holding: Holding) -> Allocation:
    """The slot's instances, by start."""
    return Allocation(
        tuple(Instance(place.start, place.gpcs, holding[place]) for place in sorted(holding))
    )


def holding_before(problem: Problem) -> Holding:
    """What is held before slot 0, as far as it has a task."""
    return _holding(problem, problem.initial.instances if problem.initial else ())


def holdings_of(problem: Problem, plan: Plan) -> list[Holding]:
    """What every slot of the plan holds."""
    if len(plan.slots) != problem.slots:
        raise PlanError(
            f"the start plan has {len(plan.slots)} slots and the window {problem.slots}; "
            "give a plan of this problem or none"
        )
    return [_holding(problem, allocation.instances) for allocation in plan.slots]


def _holding(problem: Problem, instances: tuple[Instance, ...]) -> Holding:
    holding: Holding = {}
    for instance in instances:
        where = find_placement(problem.board, instance.start, instance.gpcs)
        if where is None:
            raise PlanError(
                f"{problem.board.name} has no place for {instance}; see `migrator boards`"
            )
        if instance.task is not None:
            holding[where] = instance.task
    return holding


def pattern_of(holding: Holding, tenant: str) -> Multiset:
    """The multiset of sizes that the tenant's inference holds."""
    task = Task(tenant, Kind.INFERENCE)
    return multiset_of(tuple(where for where, its in holding.items() if its == task))
