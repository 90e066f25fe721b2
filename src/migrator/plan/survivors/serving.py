"""What tenants can serve with, slot by slot, when positions are left aside, and what it earns.

A *serving pattern* is the multiset of a tenant's instances that serve in a slot. An instance
that begins to serve has been held for the lead (the whole slots of the overhead) before. Those
that are held and wait to be warm, and those that retrain, are *extra* instances of the slot.

A *share* is a joint serving pattern with the instances beside it that retrain or wait to be warm.
`find_shares` finds the one that earns most at given prices, in every slot.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from migrator.core.catalogue import Board, Multiset, multisets
from migrator.core.problem import Kind, Problem, Task, Tenant
from migrator.plan.exact.space import Bools, Floats, Ints, Space, geometry
from migrator.plan.exact.tables import NEVER, Tables, expected_throughput
from migrator.plan.kernels import compiled


class Serving(NamedTuple):
    """The tenants' serving patterns, how one follows another, and what a slot is then worth.

    Patterns ascend by number of instances; the first is empty. Rows beyond a tenant's own
    number are not used.
    """

    patterns: Ints
    """[tenant]: how many it has"""
    counts: Floats
    """[tenant, pattern, size]"""
    fewer: Ints
    """[tenant, n, 2]: (pattern, the same less one instance); -1 ends"""
    steps: Ints
    """[tenant, n, 3]: (what of the slot before serves on, what serves now, the pattern of the
    instances that begin to serve); -1 ends"""
    served: Floats
    """[tenant, slot, step]: expected throughput"""
    accuracy: Floats
    """[tenant, done]"""
    with_size: Ints
    """[tenant, pattern, size]: plus one instance that was retrained on; itself if it can't"""
    lead: Ints
    """[tenant]: whole slots for which a new instance is held before it serves"""
    first_new: Ints
    """[tenant]: first slot in which an instance that is new to the tenant can serve"""
    before: Ints
    """[tenant, pattern]: 1 if it can serve on from before slot 0"""
    durations: Ints
    """[tenant, size]: slots of a retraining to be started, 0 where there is none on that size"""
    end: Ints
    """[tenant]: slot at which a running retraining ends, -1 none; with nothing to retrain, the
    window's end"""
    end_size: Ints
    """[tenant]: size index of the running retraining, -1 none"""
    optional: Bools
    """[tenant]: its retraining may be left out"""
    later: Floats
    """[tenant]: goodput after the window that its completed retraining adds"""


class Shares(NamedTuple):
    """What the board can rent out in a slot: joint serving patterns, and what fits beside them.

    Beside the instances that serve there are sets that retrain and sets that wait to be warm.
    Every tenant holds an instance of its min_gpcs; where none of its serving pattern is large
    enough, one of the waiting ones must be. Multisets are numbered as the board does, plus 1; 0
    is the empty one.
    """

    joint: Ints
    """[joint, tenant] -> serving pattern"""
    room: Ints
    """[joint] -> its room"""
    rooms: Ints
    """[room, 2]: (multiset of all instances that serve, minima still needed)"""
    union: Ints
    """[multiset, multiset]: both together; -1 if too large for the board"""
    has_minima: Bools
    """[minima needed, multiset]"""
    sizes: Floats
    """[multiset, size]"""
    retraining: Ints
    """[n]: the multisets that can retrain at the same time; the empty one first"""
    placeable: Bools
    """[mask, multiset]"""


def build_serving(problem: Problem, space: Space, tables: Tables) -> Serving:
    """Tabulate the tenants."""
    own = [_serving_patterns(space, m) for m in range(len(problem.tenants))]
    lists = [_steps(each) for each in own]
    width = max(map(len, own))
    tenants, sizes = problem.tenants, space.geometry.sizes
    longest = max(len(steps) for steps, _ in lists)
    serving = Serving(
        patterns=np.array([len(each) for each in own], np.int64),
        counts=np.zeros((len(own), width, len(sizes))),
        fewer=np.full((len(own), max(len(fewer) for _, fewer in lists) + 1, 2), -1, np.int64),
        steps=np.full((len(own), longest + 1, 3), -1, np.int64),
        served=np.zeros((len(own), problem.slots, longest)),
        accuracy=np.array(
            [[t.accuracy_pre, _final_accuracy(problem, t)] for t in tenants], np.float64
        ),
        with_size=np.zeros((len(own), width, len(sizes)), np.int64),
        lead=np.zeros(len(own), np.int64),
        first_new=np.zeros(len(own), np.int64),
        before=np.zeros((len(own), width), np.int64),
        durations=tables.durations,
        end=np.full(len(own), -1, np.int64),
        end_size=np.full(len(own), -1, np.int64),
        optional=tables.optional,
        later=tables.later,
    )
    for m, (tenant, patterns, (steps, fewer)) in enumerate(zip(tenants, own, lists, strict=True)):
        index = {each: i for i, each in enumerate(patterns)}
        serving.counts[m, : len(patterns)] = [[p.count(k) for k in sizes] for p in patterns]
        serving.steps[m, : len(steps)] = steps
        serving.fewer[m, : len(fewer)] = fewer
        total = np.array([sum(tenant.capability[size] for size in p) for p in patterns], np.float64)
        slots_over = min(tenant.overhead_s / problem.slot_s, float(problem.slots))
        serving.lead[m] = lead = int(slots_over + 1e-9)
        serving.first_new[m] = lead + (1 if problem.initial is None else 0)
        fresh = min(1.0, lead + 1.0 - slots_over)
        kept, then = total[steps[:, 0]], total[steps[:, 1]]
        serving.served[m, :, : len(steps)] = expected_throughput(
            tenant, kept + fresh * (then - kept)
        )
        for i, p in enumerate(patterns):
            for k, size in enumerate(sizes):
                more = tuple(sorted((*p, size), reverse=True))
                serving.with_size[m, i, k] = index.get(more, i)
        serving.before[m, : len(patterns)] = _serving_before(problem, tenant, patterns)
        left = problem.slots_left(tenant)
        if left is not None and problem.initial is not None:
            task = Task(tenant.name, Kind.RETRAINING)
            held = next(each for each in problem.initial.instances if each.task == task)
            serving.end[m], serving.end_size[m] = left, sizes.index(held.gpcs)
        elif not tables.durations[m].any():
            serving.end[m] = problem.slots
    return serving


def build_shares(problem: Problem, space: Space) -> Shares:
    """What the problem's board can rent out."""
    own = tuple(_serving_patterns(space, m) for m in range(len(problem.tenants)))
    minima = tuple(tenant.min_gpcs for tenant in problem.tenants)
    retraining = tuple(map(tuple, space.priced.beside_sizes.astype(int).tolist()))
    return _shares_of(problem.board, own, minima, retraining)


@lru_cache(maxsize=64)
def _shares_of(
    board: Board,
    own: tuple[tuple[Multiset, ...], ...],
    minima: tuple[int, ...],
    retraining: tuple[tuple[int, ...], ...],
) -> Shares:
    geo = geometry(board)
    known: tuple[Multiset, ...] = ((), *multisets(board))
    index = {each: i for i, each in enumerate(known)}
    joints: list[tuple[Multiset, tuple[int, ...], tuple[int, ...]]] = [((), (), ())]
    for patterns, least in zip(own, minima, strict=True):
        joints = [
            (union, (*chosen, p), needed if any(k >= least for k in pattern) else (*needed, least))
            for held, chosen, needed in joints
            for p, pattern in enumerate(patterns)
            if (union := tuple(sorted(held + pattern, reverse=True))) in index
        ]
    needs: dict[tuple[int, ...], int] = {}
    rooms: dict[tuple[int, int], int] = {}
    numbers = []
    for held, _, needed in joints:
        need = needs.setdefault(tuple(sorted(needed, reverse=True)), len(needs))
        numbers.append(rooms.setdefault((index[held], need), len(rooms)))
    sizes = np.array([[each.count(k) for k in geo.sizes] for each in known], np.float64)
    return Shares(
        joint=np.array([chosen for _, chosen, _ in joints], np.int64),
        room=np.array(numbers, np.int64),
        rooms=np.array(list(rooms), np.int64),
        union=np.array(
            [[index.get(tuple(sorted(a + b, reverse=True)), -1) for b in known] for a in known],
            np.int64,
        ),
        has_minima=np.array([[_has(each, need) for each in known] for need in needs], np.bool_),
        sizes=sizes,
        retraining=np.array(
            [int((sizes == each).all(axis=1).argmax()) for each in retraining], np.int64
        ),
        placeable=np.concatenate([np.ones((len(geo.placeable), 1), np.bool_), geo.placeable], 1),
    )


def _has(held: Multiset, needed: tuple[int, ...]) -> bool:
    """Whether there is an instance for each of the minima (both in descending order)."""
    return len(held) >= len(needed) and all(a >= b for a, b in zip(held, needed, strict=False))


def _serving_patterns(space: Space, m: int) -> tuple[Multiset, ...]:
    """Sub-multisets of what the tenant can hold beside the others' minimum."""
    found = {u for p in space.patterns[m] for u in _sub_multisets(p)}
    return tuple(sorted(found, key=lambda p: (len(p), p)))


def _sub_multisets(pattern: Multiset) -> set[Multiset]:
    found: set[Multiset] = {()}
    for size in pattern:
        found |= {tuple(sorted((*each, size), reverse=True)) for each in found}
    return found


@lru_cache(maxsize=256)
def _steps(patterns: tuple[Multiset, ...]) -> tuple[Ints, Ints]:
    """`steps` and `fewer` of one tenant."""
    index = {each: i for i, each in enumerate(patterns)}
    steps = [
        (index[u], index[w], index[_difference(w, u)]) for w in patterns for u in _sub_multisets(w)
    ]
    fewer = [
        (index[p], index[less])
        for p in patterns
        for less in sorted({p[:i] + p[i + 1 :] for i in range(len(p))})
    ]
    return np.array(sorted(steps), np.int64), np.array(fewer, np.int64).reshape(-1, 2)


def _difference(large: Multiset, small: Multiset) -> Multiset:
    rest = list(large)
    for size in small:
        rest.remove(size)
    return tuple(rest)


def _final_accuracy(problem: Problem, tenant: Tenant) -> float:
    retrains = problem.may_retrain(tenant) or problem.slots_left(tenant) is not None
    return tenant.accuracy_post if retrains else tenant.accuracy_pre


def _serving_before(problem: Problem, tenant: Tenant, patterns: tuple[Multiset, ...]) -> Ints:
    if problem.initial is None:
        return np.ones(len(patterns), np.int64)
    task = Task(tenant.name, Kind.INFERENCE)
    # an instance it retrains on may turn to inference only once the retraining is done
    held = tuple(sorted(i.gpcs for i in problem.initial.instances if i.task == task))
    able = tuple(size for size in held if size in tenant.capability)
    return np.array([p in _sub_multisets(able) for p in patterns], np.int64)


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
