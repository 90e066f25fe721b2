"""The best inference around a fixed schedule under the `paper` charge."""

from __future__ import annotations

import numpy as np

from migrator.planning.arrays import Ints
from migrator.planning.exact.schedule import Schedule, occupied_by
from migrator.planning.exact.space import Space, SpaceArrays
from migrator.planning.exact.tables import IMPOSSIBLE, NEVER, GoodputTables, stage_after
from migrator.planning.exact.transition import (
    DONE,
    WAITING,
    LabelTable,
    SlotTransition,
    empty_labels,
    empty_step,
    transition,
)
from migrator.planning.kernels import compiled


def best_path(space: Space, tables: GoodputTables, schedule: Schedule) -> tuple[float, Ints]:
    """Goodput of the best sequence of joint patterns around `schedule`, and the sequence.

    NEVER where the schedule leaves no room for the minimum instances of the tenants.
    """
    slots = tables.keep.shape[2]
    status = np.full((slots, len(schedule)), WAITING, np.int64)
    later = 0.0
    for m, start in enumerate(schedule):
        if start is not None:
            stage = stage_after(tables, m, start.configuration)
            status[start.end :, m] = DONE + 1 - stage
            later += float(tables.later[m, stage])
    held, path = empty_labels(1, len(schedule), len(space.joint)), np.zeros(slots, np.int64)
    came_from, step = np.empty((slots, len(space.joint)), np.int64), empty_step(space, tables)
    masks = occupied_by(space, schedule, slots)
    value = _find_path(status, held, masks, space.arrays, tables, step, came_from, path)
    return value + later, path


@compiled
def _find_path(
    status: Ints,
    held: LabelTable,
    occupied: Ints,
    space: SpaceArrays,
    tables: GoodputTables,
    step: SlotTransition,
    came_from: Ints,
    path: Ints,
) -> float:
    """Fill `path`; returns its goodput.

    `held`: room for one label; came_from [slot, joint]: room for the joint pattern before.
    """
    joint, value, fitting = held.joint, held.value, space.fitting
    reached, slots, entries = step.reached, status.shape[0], 1
    joint[0, 0], value[0, 0] = 0, 0.0
    for slot in range(slots):
        held.entries[0] = entries
        mask = occupied[slot]
        transition(slot, status[slot], mask, space, tables, held, 0, step)
        for n in range(reached.shape[0]):
            j = fitting[mask, n]
            if j < 0:
                break
            if reached[j] > IMPOSSIBLE:
                came_from[slot, j] = joint[0, step.origin[j]]
        entries = 0
        for n in range(reached.shape[0]):
            j = fitting[mask, n]
            if j < 0:
                break
            if reached[j] > IMPOSSIBLE:
                joint[0, entries], value[0, entries] = j, reached[j]
                entries += 1
        if entries == 0:
            return NEVER
    best = 0
    for i in range(1, entries):
        if value[0, i] > value[0, best]:
            best = i
    j = joint[0, best]
    for slot in range(slots - 1, -1, -1):
        path[slot] = j
        j = came_from[slot, j]
    goodput: float = value[0, best]
    return goodput
