"""States of the search, one row each, and which of them go on to the next slot.

A state is left out where another one with the same retraining status could change to its
allocation at once and still be ahead. Slices can be rearranged so that placements stay
placements: of the states that differ in nothing else, one goes on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from migrator.plan.exact.space import Bools, Floats, Ints
from migrator.plan.exact.tables import NEVER
from migrator.plan.kernels import compiled, compiled_inner, entry, integer
from migrator.plan.survivors.options import Arrivals, expected
from migrator.plan.survivors.search import Costs

STILL, DONE = integer(-1), integer(-2)
"""Retraining status of a tenant that has not started and of one that has completed."""
COMPARED = 48
"""States of the same status that a new one is compared with."""
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]


class Layer(NamedTuple):
    """States of one slot, one row each."""

    place: Ints
    """[state, tenant]: STILL, DONE or the placement it retrains on"""
    end: Ints
    """[state, tenant]: first slot after a running retraining"""
    owner: Int8s
    """[state, placement]: tenant that holds it for either task, -1 none"""
    age: Int32s
    """[state, placement]: whole slots its holder has had it before, up to the warm age"""
    value: Floats
    """[state]: goodput so far"""


class Choices(NamedTuple):
    """What a slot can hold: every set of retrainings that may start, every share of the rest."""

    starts: Ints
    """[start, tenant]: placement on which its retraining starts, -1 none; none of all first"""
    start_facts: Ints
    """[start, 3]: (slices taken, tenants as bits, slots of the longest)"""
    shares: Ints
    """[share, tenant] -> own set; those of a mask together"""
    first: Ints
    """[mask + 1]: where the shares of the mask begin"""
    own: Ints
    """[tenant, n]: own sets that occur, -1 ends"""
    pattern: Ints
    """[tenant, code]: serving pattern of a sum of size weights"""
    place_size: Ints
    place_mask: Ints
    durations: Ints
    """[tenant, size]: slots of a retraining, 0 where there is none on that size"""
    lead: Ints
    """[tenant]: whole slots for which a new instance is held before it serves"""
    accuracy: Floats
    """[tenant, done]"""
    turns: Ints
    """[n, placement]: rearrangements of the placements that change nothing; none first"""


class Candidates(NamedTuple):
    """States that may follow, one entry each."""

    state: Ints
    """the state before"""
    start: Ints
    share: Ints
    bound: Floats
    value: Floats
    used: Ints
    """[1]: how many entries are used"""
    limits: Floats
    """[2]: (what a bound must exceed, largest bound left out for want of room)"""
    order: Ints
    """[2, n]: see `descending`"""


def candidates(room: int, incumbent: float) -> Candidates:
    """Room for candidates that may beat the incumbent."""
    state, start, share = np.empty((3, room), np.int64)
    bound, value = np.empty((2, room))
    limits = np.array([incumbent, NEVER])
    used, order = np.zeros(1, np.int64), np.empty((2, room), np.int64)
    return Candidates(state, start, share, bound, value, used, limits, order)


def next_layer(
    slot: int,
    width: int,
    all_warm: bool,
    now: Layer,
    found: Candidates,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
) -> tuple[Layer, Ints, float, int]:
    """The best states after the slot, where each comes from, the best bound lost, work.

    It comes from a state, turned: [state, (state before, turn)].
    """
    order = np.argsort(-found.bound[: found.used[0]], kind="stable")
    room, tenants, places = min(width, len(order)), now.place.shape[1], now.owner.shape[1]
    then = Layer(
        place=np.empty((room, tenants), np.int64),
        end=np.empty((room, tenants), np.int64),
        owner=np.empty((room, places), np.int8),
        age=np.empty((room, places), np.int32),
        value=np.empty(room),
    )
    back = np.empty((room, 2), np.int64)
    known = choices, costs, arrivals
    tables = _tables(len(order), room, tenants, places)
    kept, lost, work = entry(_keep_best)(
        slot, width, all_warm, now, found, order, *known, tables, then, back
    )
    layer = Layer(
        then.place[:kept].copy(),
        then.end[:kept].copy(),
        then.owner[:kept].copy(),
        then.age[:kept].copy(),
        then.value[:kept].copy(),
    )
    return layer, back[:kept].copy(), max(float(found.limits[1]), lost), work


class _Known(NamedTuple):
    """Which states are kept so far."""

    used: Bools
    """[rank]: whether the candidate has been looked at"""
    taken: Ints
    """[combination of statuses]: states kept"""
    seen: Ints
    """hash table of rows by state"""
    chains: Ints
    """hash table by status: (first row, last row) of those with it"""
    following: Ints
    """[row]: the next one with the same status"""
    scratch: Ints


def _tables(ranks: int, rows: int, tenants: int, places: int) -> _Known:
    room = 64
    while room < 4 * rows:
        room *= 2
    return _Known(
        used=np.zeros(ranks, np.bool_),
        taken=np.zeros(3**tenants, np.int64),
        seen=np.full(room, -1, np.int64),
        chains=np.full((room, 2), -1, np.int64),
        following=np.empty(rows, np.int64),
        scratch=np.empty(places, np.int64),
    )


@compiled
def _keep_best(
    slot: int,
    width: int,
    all_warm: bool,
    now: Layer,
    found: Candidates,
    order: Ints,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
    tables: _Known,
    then: Layer,
    back: Ints,
) -> tuple[int, float, int]:
    """Fill `then` in rounds over the ranked candidates; (states, best bound lost, work).

    Half of the states are the best ones; then every combination of statuses has a quota.
    """
    ranks, kept, work, quota = order.shape[0], 0, 0, 0
    rank, left = 0, ranks
    used, taken, seen, chains = tables.used, tables.taken, tables.seen, tables.chains
    following, scratch = tables.following, tables.scratch
    for row in range(then.value.shape[0]):
        while left > 0 and kept == row:
            if rank == ranks:
                rank, quota = 0, 2 * max(1, quota)
            chosen = rank
            rank += 1
            if used[chosen]:
                continue
            i = order[chosen]
            phase = _set_status(slot, row, i, now, found, choices, then)
            if row >= width // 2 and taken[phase] >= quota:
                continue
            used[chosen] = True
            left -= 1
            _set_holders(row, i, all_warm, now, found, choices, costs, then)
            turn = _turn(row, choices, then, scratch)
            at, chain, known = _find(row, then, seen, chains)
            if known:
                work += 40
                continue
            first = chains[chain, 0]
            dominated, looked = _is_dominated(
                slot + 1, row, first, following, then, choices, costs, arrivals, scratch
            )
            work += 40 + 15 * looked
            if not dominated:
                seen[at], following[row] = row, -1
                if chains[chain, 0] < 0:
                    chains[chain, 0] = row
                else:
                    following[chains[chain, 1]] = row
                chains[chain, 1] = row
                back[row, 0], back[row, 1] = found.state[i], turn
                taken[phase] += 1
                kept += 1
    lost = NEVER
    for rank in range(ranks - 1, -1, -1):
        if not used[rank]:
            lost = found.bound[order[rank]]
    return kept, lost, work


@compiled_inner
def _turn(row: int, choices: Choices, then: Layer, code: Ints) -> int:
    """Rearrange the state to the first of those that are alike; returns how.

    `code`: room for a number per placement.
    """
    place, owner, age, turns = then.place, then.owner, then.age, choices.turns
    places, tenants, best = owner.shape[1], place.shape[1], 0
    for at in range(places):
        code[at] = (owner[row, at] + 1) * 65536 + age[row, at]
    for m in range(tenants):
        if place[row, m] >= 0:
            code[place[row, m]] += 32768
    for turn in range(1, turns.shape[0]):
        for at in range(places):
            difference = code[turns[turn, at]] - code[turns[best, at]]
            if difference != 0:
                if difference > 0:
                    best = turn
                break
    if best > 0:
        for m in range(tenants):
            for at in range(places):
                if place[row, m] >= 0 and turns[best, at] == place[row, m]:
                    place[row, m] = at
                    break
        for at in range(places):
            held = code[turns[best, at]]
            owner[row, at], age[row, at] = (held >> 16) - 1, held & 32767
    return best


@compiled_inner
def _find(row: int, then: Layer, seen: Ints, chains: Ints) -> tuple[int, int, bool]:
    """Where the state and its status belong in the tables; and whether the state is known."""
    owner, age, last, key = then.owner, then.age, seen.shape[0] - 1, 0
    for m in range(then.place.shape[1]):
        place = then.place[row, m]
        key = (key * 1000003 + place) * 1000003 + (then.end[row, m] if place >= 0 else 0)
    chain = (key ^ (key >> 17)) & last
    while chains[chain, 0] >= 0 and not _same_status(row, chains[chain, 0], then):
        chain = (chain + 1) & last
    for i in range(owner.shape[1]):
        key = (key * 1000003 + owner[row, i]) * 1000003 + age[row, i]
    at = (key ^ (key >> 17)) & last
    while seen[at] >= 0:
        other = seen[at]
        if _same_status(row, other, then):
            same = True
            for i in range(owner.shape[1]):
                if owner[row, i] != owner[other, i] or age[row, i] != age[other, i]:
                    same = False
            if same:
                return at, chain, True
        at = (at + 1) & last
    return at, chain, False


@compiled_inner
def _same_status(row: int, other: int, then: Layer) -> bool:
    for m in range(then.place.shape[1]):
        place = then.place[row, m]
        if place != then.place[other, m]:
            return False
        if place >= 0 and then.end[row, m] != then.end[other, m]:
            return False
    return True


@compiled_inner
def _set_status(
    slot: int, row: int, i: int, now: Layer, found: Candidates, choices: Choices, then: Layer
) -> int:
    """Write value and retraining status of candidate i; returns the combination of statuses."""
    before, start, phase = found.state[i], found.start[i], 0
    then.value[row] = found.value[i]
    for m in range(then.place.shape[1]):
        place, end = now.place[before, m], now.end[before, m]
        starts = choices.starts[start, m]
        if starts >= 0:
            place, end = starts, slot + choices.durations[m, choices.place_size[starts]]
        elif place >= 0 and end == slot:
            place = DONE
        then.place[row, m], then.end[row, m] = place, end
        phase = 3 * phase + max(0, -place)
    return phase


@compiled_inner
def _set_holders(
    row: int,
    i: int,
    all_warm: bool,
    now: Layer,
    found: Candidates,
    choices: Choices,
    costs: Costs,
    then: Layer,
) -> None:
    """Write which tenant holds each placement, and since when."""
    before, share, owner, places = found.state[i], found.share[i], then.owner, costs.set_places
    for at in range(owner.shape[1]):
        owner[row, at] = -1
    for m in range(then.place.shape[1]):
        own, place = choices.shares[share, m], then.place[row, m]
        for n in range(places.shape[1]):
            if places[own, n] < 0:
                break
            owner[row, places[own, n]] = m
        if place >= 0:
            owner[row, place] = m
    for at in range(owner.shape[1]):
        m, age = owner[row, at], 0
        if m >= 0 and all_warm:
            age = costs.warm_age[m]
        elif m >= 0 and now.owner[before, at] == m:
            age = min(costs.warm_age[m], now.age[before, at] + 1)
        then.age[row, at] = age


@compiled_inner
def _is_dominated(
    slot: int,
    row: int,
    other: int,
    following: Ints,
    then: Layer,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
    lacking: Ints,
) -> tuple[bool, int]:
    """Whether one of the chain that begins with `other` is at least as good; rows looked at."""
    looked = 0
    while other >= 0 and looked < COMPARED:
        looked += 1
        if then.value[other] >= then.value[row] and _can_change(
            slot, other, row, then, choices, costs, arrivals, lacking
        ):
            return True, looked
        other = following[other]
    return False, looked


@compiled_inner
def _can_change(
    slot: int,
    other: int,
    row: int,
    then: Layer,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
    lacking: Ints,
) -> bool:
    """Whether `other`, changed to the allocation of `row` in `slot`, is still ahead of it.

    What an instance serves more than another beside it is at most what it serves alone.
    `lacking`: room for the placements that `row` has had for longer.
    """
    owner, age, slots, count = then.owner, then.age, arrivals.ordered.shape[1], 0
    for at in range(owner.shape[1]):
        m = owner[row, at]
        if m >= 0 and (owner[other, at] != m or age[other, at] < age[row, at]):
            lacking[count] = at
            count += 1
    slack = then.value[other] - then.value[row]
    for i in range(count):
        m, first = owner[row, lacking[i]], True
        for j in range(i):
            if owner[row, lacking[j]] == m:
                first = False
        if not first:
            continue
        accuracy = max(choices.accuracy[m, 0], choices.accuracy[m, 1])
        over, warm_age = costs.over[m], costs.warm_age[m]
        for t in range(slot, min(slots, slot + warm_age + 1)):
            missing, ahead = 0.0, float(t - slot)
            for j in range(i, count):
                at = lacking[j]
                if owner[row, at] != m:
                    continue
                has = age[other, at] + 2.0 if owner[other, at] == m else 1.0
                needs = over + 1.0 if age[row, at] >= warm_age else age[row, at] + 2.0
                share = min(1.0, max(0.0, needs + ahead - over))
                share -= min(1.0, max(0.0, has + ahead - over))
                if share > 0.0:
                    missing += costs.capability[m, at] * share
            if missing > 0.0:
                slack -= accuracy * expected(arrivals, m, t, missing)
                if slack < 0.0:
                    return False
    return True
