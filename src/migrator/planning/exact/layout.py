"""From joint patterns to instances on slices: the layout that disturbs least.

Under the `paper` charge a move costs nothing, but it is real work on a real board. So of all
layouts of a slot those are preferred in which instances stay where their tenant had them, and then
those whose new instances come to lie on slices that were idle before, where they can be prepared
ahead (pre-initialization).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

import numpy as np
import numpy.typing as npt

from migrator.core.catalogue import Board, Multiset
from migrator.core.problem import Allocation, Instance, Kind, Problem, Task
from migrator.planning.arrays import Int8s, Ints
from migrator.planning.exact.geometry import Geometry, geometry
from migrator.planning.exact.schedule import Schedule
from migrator.planning.exact.space import Space

KEPT, ON_IDLE = 4, 1
"""What a GPC is worth that stays in place, and one that is new but was idle before."""
REMEMBERED = 24
"""Layouts of the stretch before that are carried on; more changed nothing measurable."""
_KEPT_LAYOUTS = 256
"""Lists of layouts that are kept: replanning meets the same patterns again."""
Owners = Int8s
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
    options = []
    for joint, running, _ in stretches:
        mask = sum(int(geo.place_mask[place]) for _, place in running)
        wanted = tuple(
            patterns[p] for patterns, p in zip(space.patterns, space.joint[joint], strict=True)
        )
        options.append((_layouts(problem.board, wanted, mask), mask))
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


@lru_cache(maxsize=_KEPT_LAYOUTS)
def _layouts(board: Board, wanted: tuple[Multiset, ...], mask: int) -> Owners:
    """Every way to place the tenants' patterns on the slices that `mask` leaves free."""
    geo = geometry(board)
    needed = sorted(
        ((size, m) for m, pattern in enumerate(wanted) for size in pattern), reverse=True
    )
    owners = [-1] * len(geo.places)
    places: dict[int, list[tuple[int, int]]] = {size: [] for size, _ in needed}
    for at, spot in enumerate(geo.places):
        if spot.gpcs in places and not spot.mask & mask:
            places[spot.gpcs].append((at, spot.mask))

    def place(rank: int, taken: int, after: int) -> Iterator[list[int]]:
        if rank == len(needed):
            yield owners.copy()
            return
        size, tenant = needed[rank]
        # equal instances of one tenant are interchangeable: place them in ascending order
        lowest = after + 1 if rank and needed[rank - 1] == needed[rank] else 0
        for at, slices in places[size]:
            if at < lowest or slices & taken:
                continue
            owners[at] = tenant
            yield from place(rank + 1, taken | slices, at)
            owners[at] = -1

    layouts = np.array(list(place(0, mask, -1)), np.int8)
    layouts.flags.writeable = False
    return layouts


def _held_before(problem: Problem, geo: Geometry) -> tuple[Owners, int]:
    """The layout before slot 0 (empty where none is known)."""
    owners = np.full((1, len(geo.places)), -1, np.int8)
    mask = 0
    names = [tenant.name for tenant in problem.tenants]
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
    return Allocation(tuple(sorted(instances, key=lambda instance: instance.start)))
