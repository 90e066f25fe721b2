"""Retraining schedules worth trying under the `survivors` charge.

When retraining pays depends little on how changes are charged, so schedules come from the
label search, once as if changes were free and once under the `paper` charge. Where a
retraining sits matters more here: every slice it takes turns somebody out of a warm instance.
So each schedule is also tried with its retrainings laid on as few slices as possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from migrator.core.placement import Placement, find_placement
from migrator.core.problem import Charge, Problem
from migrator.plan.exact.inference import best_path
from migrator.plan.exact.planner import TOLERANCE, find_schedule
from migrator.plan.exact.schedule import Schedule, Start
from migrator.plan.exact.space import Geometry, Space
from migrator.plan.exact.tables import Tables, build_tables


def schedules_to_try(
    problem: Problem, space: Space, budget: float, late: Callable[[], bool]
) -> tuple[list[Schedule], float]:
    """Distinct schedules, and a bound on any plan.

    If changes were free, every plan would be worth at least what it is: so the bound of that
    problem holds here too, and is the better one where overheads are small.
    """
    at_no_cost = tuple(replace(tenant, overhead_s=0.0) for tenant in problem.tenants)
    found: list[Schedule] = []
    bounds: list[float] = []
    for tenants in (at_no_cost, problem.tenants):
        variant = replace(problem, charge=Charge.PAPER, tenants=tenants)
        tables = build_tables(variant, space)
        schedule, bound = find_schedule(variant, space, tables, budget, late)
        bounds.append(bound)
        for each in (_gathered(problem, space, tables, schedule), schedule):
            if each not in found:
                found.append(each)
    return found, bounds[0]


def _gathered(problem: Problem, space: Space, tables: Tables, schedule: Schedule) -> Schedule:
    """The schedule with its retrainings moved off warm slices, onto those others have used."""
    worth, _ = best_path(space, tables, schedule)
    enough = worth - TOLERANCE * abs(worth)
    used, warm = 0, _warm_slices(problem)
    starts = [(start.begin, m) for m, start in enumerate(schedule) if start is not None]
    for _, m in sorted(starts):
        start = schedule[m]
        assert start is not None
        if problem.slots_left(problem.tenants[m]) is None:
            for place in _gentle_places(space.geometry, start, used, warm):
                moved = (*schedule[:m], replace(start, place=place), *schedule[m + 1 :])
                if _apart(space.geometry, moved) and best_path(space, tables, moved)[0] >= enough:
                    schedule = moved
                    break
        kept = schedule[m]
        assert kept is not None
        used |= space.geometry.places[kept.place].mask
    return schedule


def _gentle_places(geo: Geometry, start: Start, used: int, warm: int) -> list[int]:
    """Placements of the same size: those on the fewest warm, then the fewest new slices first."""
    size = geo.places[start.place].gpcs
    same = [(i, place) for i, place in enumerate(geo.places) if place.gpcs == size]

    def disturbance(each: tuple[int, Placement]) -> tuple[int, int, int]:
        mask = each[1].mask
        return (mask & warm).bit_count(), (mask & ~used).bit_count(), -each[1].start

    return [i for i, _ in sorted(same, key=disturbance)]


def _warm_slices(problem: Problem) -> int:
    """Slices of the instances that somebody holds before slot 0."""
    warm = 0
    for held in problem.initial.instances if problem.initial else ():
        placement = find_placement(problem.board, held.start, held.gpcs)
        if held.task is not None and placement is not None:
            warm |= placement.mask
    return warm


def _apart(geo: Geometry, schedule: Schedule) -> bool:
    """Whether no two retrainings hold a slice at the same time."""
    held = [start for start in schedule if start is not None]
    return not any(
        a.begin < b.end and b.begin < a.end and geo.places[a.place].overlaps(geo.places[b.place])
        for i, a in enumerate(held)
        for b in held[i + 1 :]
    )
