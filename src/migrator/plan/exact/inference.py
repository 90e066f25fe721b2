"""The best inference part for a fixed retraining schedule, slot by slot (`paper` charge)."""

from __future__ import annotations

import numpy as np

from migrator.plan.compiled import compiled
from migrator.plan.exact.schedule import Schedule, occupied_by
from migrator.plan.exact.space import Ints, Space, SpaceArrays
from migrator.plan.exact.tables import NEVER, Tables
from migrator.plan.exact.transition import DONE, WAITING, transition


def best_path(space: Space, tables: Tables, schedule: Schedule) -> tuple[float, Ints]:
    """Goodput of the best sequence of joint patterns around `schedule`, and the sequence."""
    slots = tables.keep.shape[2]
    status = np.full((slots, len(schedule)), WAITING, np.int64)
    for m, start in enumerate(schedule):
        status[0 if start is None else start.end :, m] = DONE
    value, path = _path(status, occupied_by(space, schedule, slots), space.arrays, tables)
    return float(value), path


@compiled
def _path(status: Ints, occupied: Ints, space: SpaceArrays, tables: Tables) -> tuple[float, Ints]:
    slots, joints = status.shape[0], space.joint.shape[0]
    origins = np.empty((slots, joints), np.int64)
    value, base = np.zeros(joints), np.empty(joints)
    for slot in range(slots):
        mask = occupied[slot]
        transition(slot, status[slot], mask, space, tables, value, base, origins[slot])
        value[:] = NEVER
        for j in space.fitting[mask]:
            if j < 0:
                break
            value[j] = base[j]
    path = np.empty(slots, np.int64)
    best = np.argmax(value)
    j = best
    for slot in range(slots - 1, -1, -1):
        path[slot] = j
        j = origins[slot, j]
    return value[best], path
