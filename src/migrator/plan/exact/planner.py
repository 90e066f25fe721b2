"""The exact planner for the `paper` charge: prices, label search in widening passes, then a layout.

A narrow pass finds a good plan; each wider one starts with that plan to beat, so most labels
are dropped by their bound. A pass that dropped nothing for lack of room proves the optimum;
otherwise the largest bound it dropped is the certificate. Up to two tenants this ends in a
fraction of a second; with more, the budget may end first.

`lay_out` then puts the joint patterns on real slices. Under the `paper` charge a move costs
nothing, but it is real work on a real board. So of all layouts of a slot those are preferred in
which instances stay where their tenant had them, and then those whose new instances come to lie on
slices that were idle before, where they can be prepared ahead (pre-initialization).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np
import numpy.typing as npt

from migrator.core.catalogue import Multiset
from migrator.core.errors import InfeasibleError, SolverError
from migrator.core.problem import Allocation, Instance, Kind, Plan, Problem, Task
from migrator.plan.exact.labels import LabelSearch, best_path
from migrator.plan.exact.prices import find_prices, tabulate_bounds
from migrator.plan.exact.space import (
    Geometry,
    Ints,
    Schedule,
    Space,
    build_space,
    occupied_by,
    retrainings_of,
    running_of,
)
from migrator.plan.exact.tables import NEVER, Tables, build_tables

WIDTHS_FEW = (24, 192, 32768)
WIDTHS_MANY = (24, 192, 1536, 12288, 32768)
"""Labels a slot, pass by pass: with up to two tenants the third pass can afford to prove."""
WORK_PER_S = 1.5e8
"""Work units that a second of the time limit buys; a current core does two to three times as
many, which leaves room for slower ones before the clock has to cut a pass short."""
HOPED_GAP = 0.005
"""With up to two tenants the first pass looks only for plans this close to the bound of the prices,
relative to it; there is one in most windows, and the others cost a pass more."""
TOLERANCE = 1e-9
"""Relative goodput below which two plans count as equally good."""


def plan_exact(problem: Problem, time_limit_s: float, steady: bool = False) -> Plan:
    """The best plan under the `paper` charge, with its certificate.

    `steady`: only the work counts, not the clock.
    """
    began = time.perf_counter()

    def late() -> bool:
        return not steady and time.perf_counter() - began > time_limit_s

    space = build_space(problem)
    tables = build_tables(problem, space)
    schedule, bound = find_schedule(problem, space, tables, WORK_PER_S * time_limit_s, late)
    value, path = best_path(space, tables, schedule)
    slots = lay_out(problem, space, schedule, path)
    later = sum(
        float(each) for each, start in zip(tables.later, schedule, strict=True) if start is not None
    )
    return Plan(
        goodput=value - later,
        upper_bound=max(bound, value),
        solver="exact",
        solve_s=time.perf_counter() - began,
        retrainings=retrainings_of(problem, space, schedule),
        slots=slots,
        later_goodput=later,
    )


def find_schedule(
    problem: Problem, space: Space, tables: Tables, budget: float, late: Callable[[], bool]
) -> tuple[Schedule, float]:
    """The retraining schedule of the best plan found, and a bound on every plan."""
    running = running_of(problem, space)
    prices = find_prices(space, tables, occupied_by(space, running, problem.slots), late)
    search = LabelSearch(space, tables, tabulate_bounds(space, tables, prices), running)
    return _widen(problem, search, prices.bound, budget, late)


def _widen(
    problem: Problem,
    search: LabelSearch,
    bound: float,
    budget: float,
    late: Callable[[], bool],
) -> tuple[Schedule, float]:
    """Passes of growing width until the optimum is proven or the budget is spent."""
    value, schedule = NEVER, None
    few = len(problem.tenants) <= 2
    if few:
        hoped = bound - HOPED_GAP * abs(bound)
        found = search.run(hoped, WIDTHS_FEW[0], budget, late)
        budget -= found.work
        bound = min(bound, max(hoped, found.value, found.missed))
        if found.schedule is not None:
            value, schedule = found.value, found.schedule
            if bound <= value + TOLERANCE * abs(value):
                return schedule, value
    for width in WIDTHS_FEW if few else WIDTHS_MANY:
        if schedule is not None and width == WIDTHS_FEW[0]:
            continue
        found = search.run(value + TOLERANCE * abs(value), width, budget, late)
        budget -= found.work
        if found.schedule is None and schedule is None and found.missed > NEVER:
            eager = search.run(NEVER, width, budget, late, eager=True)
            value, schedule = eager.value, eager.schedule
            budget -= eager.work
        if found.schedule is not None:
            value, schedule = found.value, found.schedule
        if found.missed <= NEVER and schedule is None:
            raise _no_schedule(problem)
        bound = min(bound, max(value, found.missed))
        if schedule is None:
            continue
        if bound <= value + TOLERANCE * abs(value):
            return schedule, value
        if budget <= found.work or late():
            break
    if schedule is None:
        raise SolverError(
            "no plan was found in time although one may exist; "
            "raise --time-limit or give the window more slots"
        )
    return schedule, bound


def _no_schedule(problem: Problem) -> InfeasibleError:
    names = ", ".join(each.name for each in problem.tenants if problem.must_retrain(each))
    return InfeasibleError(
        f"retraining_slots: no schedule completes the retraining of {names} inside "
        f"{problem.slots} slots while every tenant keeps an instance of its min_gpcs; "
        'give the window more slots or set retraining of a tenant to "optional"'
    )


KEPT, ON_IDLE = 4, 1
"""What a GPC is worth that stays in place, and one that is new but was idle before."""
REMEMBERED = 24
"""Layouts of the stretch before that are carried on; more changed nothing measurable."""
Owners = npt.NDArray[np.int8]
"""[layout, placement] -> tenant that holds it for inference, -1 none"""


def lay_out(
    problem: Problem, space: Space, schedule: Schedule, path: Ints
) -> tuple[Allocation, ...]:
    """One allocation per slot: the retrainings of `schedule`, inference as `path` says."""
    geo = space.geometry
    retraining = _retraining_by_slot(schedule, len(path))
    stretches = [
        (joint, running, len(list(group)))
        for (joint, running), group in groupby(zip(path.tolist(), retraining, strict=True))
    ]
    known: dict[tuple[int, int], Owners] = {}
    options = []
    for joint, running, _ in stretches:
        mask = sum(int(geo.place_mask[place]) for _, place in running)
        if (joint, mask) not in known:
            wanted = [own[p] for own, p in zip(space.patterns, space.joint[joint], strict=True)]
            known[joint, mask] = np.array(list(_layouts(geo, wanted, mask)), np.int8)
        options.append((known[joint, mask], mask))
    chosen = _least_disturbing(geo, options, _held_before(problem, geo))
    slots: list[Allocation] = []
    for owners, (_, running, length) in zip(chosen, stretches, strict=True):
        slots += [_allocation(problem, geo, owners, running)] * length
    return tuple(slots)


def _retraining_by_slot(schedule: Schedule, slots: int) -> list[tuple[tuple[int, int], ...]]:
    return [
        tuple(
            (m, start.place)
            for m, start in enumerate(schedule)
            if start is not None and start.begin <= slot < start.end
        )
        for slot in range(slots)
    ]


def _layouts(geo: Geometry, wanted: list[Multiset], mask: int) -> Iterator[list[int]]:
    """Every way to place the tenants' patterns on the slices that `mask` leaves free."""
    needed = sorted(
        ((size, m) for m, pattern in enumerate(wanted) for size in pattern), reverse=True
    )
    owners = [-1] * len(geo.places)
    places: dict[int, list[tuple[int, int]]] = {size: [] for size, _ in needed}
    for at, each in enumerate(geo.places):
        if each.gpcs in places and not each.mask & mask:
            places[each.gpcs].append((at, each.mask))

    def place(rank: int, taken: int, after: int) -> Iterator[list[int]]:
        if rank == len(needed):
            yield owners.copy()
            return
        size, tenant = needed[rank]
        # equal instances of one tenant are interchangeable: place them in ascending order
        first = after + 1 if rank and needed[rank - 1] == needed[rank] else 0
        for at, slices in places[size]:
            if at < first or slices & taken:
                continue
            owners[at] = tenant
            yield from place(rank + 1, taken | slices, at)
            owners[at] = -1

    return place(0, mask, -1)


def _held_before(problem: Problem, geo: Geometry) -> tuple[Owners, int]:
    """The layout before slot 0 (empty where none is known)."""
    owners = np.full((1, len(geo.places)), -1, np.int8)
    mask = 0
    names = [each.name for each in problem.tenants]
    for held in problem.initial.instances if problem.initial else ():
        for at, place in enumerate(geo.places):
            if (place.start, place.gpcs) != (held.start, held.gpcs) or held.task is None:
                continue
            if held.task.kind is Kind.INFERENCE:
                owners[0, at] = names.index(held.task.tenant)
            else:
                mask |= place.mask
    return owners, mask


def _least_disturbing(
    geo: Geometry, options: list[tuple[Owners, int]], before: tuple[Owners, int]
) -> list[Owners]:
    """One layout per stretch so that the sum of what stays and what can be prepared is most."""
    gpcs = np.array([place.gpcs for place in geo.places])
    overlaps = (geo.place_mask[:, None] & geo.place_mask[None, :]) != 0
    earlier, mask = before
    score = np.zeros(len(earlier))
    back: list[tuple[Owners, npt.NDArray[np.intp]]] = []
    for layouts, own_mask in options:
        blocked = (earlier >= 0).astype(np.int64) @ overlaps > 0
        idle = ~blocked & ((geo.place_mask & mask) == 0)
        same = earlier[:, None, :] == layouts[None, :, :]
        held = layouts[None, :, :] >= 0
        worth = KEPT * (same & held) + ON_IDLE * (~same & held & idle[:, None, :])
        total = score[:, None] + worth @ gpcs
        origin = total.argmax(axis=0)
        reached = total.max(axis=0)
        top = np.sort(np.argsort(-reached, kind="stable")[:REMEMBERED])
        earlier, score, mask = layouts[top], reached[top], own_mask
        back.append((earlier, origin[top]))
    at = int(score.argmax())
    chosen = []
    for layouts, origin in reversed(back):
        chosen.append(layouts[at])
        at = int(origin[at])
    return chosen[::-1]


def _allocation(
    problem: Problem, geo: Geometry, owners: Owners, running: tuple[tuple[int, int], ...]
) -> Allocation:
    held = [(int(at), int(m), Kind.INFERENCE) for at, m in enumerate(owners) if m >= 0]
    held += [(place, m, Kind.RETRAINING) for m, place in running]
    instances = [
        Instance(geo.places[at].start, geo.places[at].gpcs, Task(problem.tenants[m].name, kind))
        for at, m, kind in held
    ]
    return Allocation(tuple(sorted(instances, key=lambda each: each.start)))
