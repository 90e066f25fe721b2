"""What the board rents out at given prices: in every slot, the share of its slices that earns most.

A share is a joint serving pattern with the instances beside it that retrain or wait to be warm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.plan.exact.space import Bools, Floats, Ints
from migrator.plan.exact.tables import NEVER
from migrator.plan.kernels import compiled
from migrator.plan.survivors.serving import Shares

WAITING, RETRAINING = 0, 1


class Rooms(NamedTuple):
    """What fits beside a mask of occupied slices.

    A case is a multiset that serves or retrains, with the minima still needed.
    """

    waiting: Ints
    """[n, 2]: (case, multiset that waits), those of a case together"""
    retraining: Ints
    """[n, 3]: (room, multiset that retrains, case of both), those of a room together"""
    fitting: Ints
    """[n]: the joint patterns that fit"""


def rooms_beside(shares: Shares, mask: int, most: int) -> Rooms:
    """What fits beside `mask` when at most `most` tenants retrain."""
    needs, sets = shares.has_minima.shape
    able = shares.retraining[shares.sizes[shares.retraining].sum(axis=1) <= most]
    held = shares.union[shares.rooms[:, :1], able]
    room, which = np.nonzero((held >= 0) & shares.placeable[mask, held])
    cases = held[room, which] * needs + shares.rooms[room, 1]
    wanted = np.unique(cases)
    waiting = np.empty((len(wanted) * sets, 2), np.int64)
    listed = _list_waiting(
        wanted, shares.union, shares.placeable[mask], shares.has_minima, shares.sizes, waiting
    )
    waiting = waiting[:listed].copy()
    retraining = np.stack([room, able[which], cases], axis=1)
    retraining = retraining[np.isin(cases, waiting[:, 0])]
    fitting = np.flatnonzero(np.isin(shares.room, retraining[:, 0]))
    return Rooms(waiting, retraining, fitting)


@compiled
def _list_waiting(
    cases: Ints, union: Ints, placeable: Bools, has_minima: Bools, sizes: Floats, waiting: Ints
) -> int:
    """List what can wait in each case; waiting earns, so only sets that no other one contains."""
    needs, listed = has_minima.shape[0], 0
    for n in range(cases.shape[0]):
        held, need, first = cases[n] // needs, cases[n] % needs, listed
        for w in range(sizes.shape[0]):
            both = union[held, w]
            if both < 0 or not placeable[both] or not has_minima[need, w]:
                continue
            contained, i = False, first
            while i < listed and not contained:
                other, more, less = waiting[i, 1], 0, 0
                for k in range(sizes.shape[1]):
                    more += 1 if sizes[w, k] > sizes[other, k] else 0
                    less += 1 if sizes[w, k] < sizes[other, k] else 0
                contained = more == 0
                if not contained and less == 0:
                    listed -= 1
                    waiting[i, 0], waiting[i, 1] = waiting[listed, 0], waiting[listed, 1]
                else:
                    i += 1
            if not contained:
                waiting[listed, 0], waiting[listed, 1] = cases[n], w
                listed += 1
    return listed


class Found(NamedTuple):
    """What earns most in every slot, and room for finding it."""

    rent: Floats
    """[slot]: what it earns"""
    chosen: Ints
    """[slot, 3]: (joint pattern, what retrains, what waits)"""
    earns: Floats
    """[WAITING or RETRAINING, multiset]"""
    of_case: Floats
    """[2, case]: (the most that can wait earns, that multiset)"""
    of_room: Floats
    """[3, room]: (the most that extra instances earn, what retrains, what waits)"""


def empty_found(shares: Shares, slots: int) -> Found:
    """Room for the shares of all slots."""
    return Found(
        rent=np.empty(slots),
        chosen=np.empty((slots, 3), np.int64),
        earns=np.empty((2, len(shares.sizes))),
        of_case=np.empty((2, shares.has_minima.size)),
        of_room=np.zeros((3, len(shares.rooms))),
    )


@compiled
def find_shares(
    begin: int,
    end: int,
    shares: Shares,
    rooms: Rooms,
    pattern: Floats,
    beside: Floats,
    found: Found,
) -> None:
    """Find what earns most in every slot from `begin` to `end`: `rent` and `chosen`."""
    waiting, retraining, fitting = rooms.waiting, rooms.retraining, rooms.fitting
    earns, of_case, of_room, chosen = found.earns, found.of_case, found.of_room, found.chosen
    sizes, room_of = shares.sizes, shares.room
    for t in range(begin, end):
        for kind in range(2):
            for r in range(sizes.shape[0]):
                earned = 0.0
                for k in range(sizes.shape[1]):
                    earned += sizes[r, k] * beside[kind, t, k]
                earns[kind, r] = earned
        last = -1
        for i in range(waiting.shape[0]):
            case, w = waiting[i, 0], waiting[i, 1]
            if case != last or earns[WAITING, w] > of_case[0, case]:
                of_case[0, case], of_case[1, case] = earns[WAITING, w], w
                last = case
        last = -1
        for i in range(retraining.shape[0]):
            room, r, case = retraining[i, 0], retraining[i, 1], retraining[i, 2]
            earned = earns[RETRAINING, r] + of_case[0, case]
            if room != last or earned > of_room[0, room]:
                of_room[0, room], of_room[1, room], of_room[2, room] = earned, r, of_case[1, case]
                last = room
        best, joint = NEVER, 0
        for i in range(fitting.shape[0]):
            j = fitting[i]
            earned = of_room[0, room_of[j]]
            for m in range(pattern.shape[0]):
                earned += pattern[m, t, shares.joint[j, m]]
            if earned > best:
                best, joint = earned, j
        room = room_of[joint]
        found.rent[t], chosen[t, 0] = best, joint
        chosen[t, 1], chosen[t, 2] = of_room[1, room], of_room[2, room]
