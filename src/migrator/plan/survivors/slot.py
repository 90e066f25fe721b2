"""One slot of the search: what may follow each state, with the bound on all plans through it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.plan.exact.expand import descending
from migrator.plan.exact.space import Floats, Ints
from migrator.plan.exact.tables import IMPOSSIBLE, NEVER
from migrator.plan.kernels import compiled, compiled_inner
from migrator.plan.survivors.ahead import Ahead
from migrator.plan.survivors.options import Arrivals, expected
from migrator.plan.survivors.search import Costs
from migrator.plan.survivors.states import DONE, STILL, Candidates, Choices, Layer


class Scratch(NamedTuple):
    """Room for what is known of one state."""

    thrown: Floats
    """[tenant, set]: (throughput of the slot, rents of waiting paid so far)"""
    where: Ints
    """[tenant, set]: (serving pattern, slots closed from the next slot on)"""
    score: Floats
    """[tenant, start, set]; start: 0 nothing, else a retraining on a size"""
    top: Floats
    """[tenant, start]: the best score"""
    status: Ints
    """[tenant]: its retraining before anything starts"""
    own: Ints
    """[tenant]: then"""
    until: Ints
    """[tenant]: its end"""
    starts_on: Ints
    """[tenant]: 0 nothing, else one more than the size"""
    serves: Floats
    """[placement]: (capability in the slot, rents of waiting paid so far)"""
    held: Ints
    """[placement]: (weight of its size where it serves, slots closed)"""


def scratch(choices: Choices, costs: Costs) -> Scratch:
    """Room for the states of one problem."""
    (tenants, sizes), sets = choices.durations.shape, len(costs.set_places)
    places = len(choices.place_size)
    return Scratch(
        thrown=np.empty((tenants, sets, 2)),
        where=np.empty((tenants, sets, 2), np.int64),
        score=np.empty((tenants, sizes + 1, sets)),
        top=np.empty((tenants, sizes + 1)),
        status=np.empty(tenants, np.int64),
        own=np.empty(tenants, np.int64),
        until=np.empty(tenants, np.int64),
        starts_on=np.empty(tenants, np.int64),
        serves=np.empty((places, 2)),
        held=np.empty((places, 2), np.int64),
    )


@compiled
def expand(
    slot: int,
    all_warm: bool,
    now: Layer,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
    ahead: Ahead,
    room: Scratch,
    found: Candidates,
) -> int:
    """Find every choice of every state whose bound beats the limit; returns the work."""
    tenants, slots, work = now.place.shape[1], ahead.rent.shape[2] - 1, 0
    sets, sizes = costs.set_places.shape[0], choices.durations.shape[1]
    starts, facts, first, top = choices.starts, choices.start_facts, choices.first, room.top
    status, own, until, starts_on = room.status, room.own, room.until, room.starts_on
    for state in range(now.value.shape[0]):
        mask, still = _read_status(slot, state, now, choices, status)
        for m in range(tenants):
            _look_at_places(slot, state, m, all_warm, now, choices, costs, ahead, room)
            _look_at_sets(slot, m, choices, costs, arrivals, room)
            for v in range(sizes + 1):
                top[m, v] = np.inf  # not known yet
        work += 4 * tenants * sets
        for start in range(starts.shape[0]):
            taken, starting = facts[start, 0], facts[start, 1]
            both = mask | taken
            if starting & ~still or taken & mask or slot + facts[start, 2] > slots:
                continue
            shares = first[both + 1] - first[both]
            if start > 0 and shares == 0:
                continue
            for m in range(tenants):
                own[m], until[m], starts_on[m] = status[m], now.end[state, m], 0
                place = starts[start, m]
                if place >= 0:
                    k = choices.place_size[place]
                    own[m] = place
                    until[m], starts_on[m] = slot + choices.durations[m, k], k + 1
            bound = now.value[state] + _rent_ahead(slot + 1, choices, ahead, room)
            most_here = bound
            for m in range(tenants):
                v = starts_on[m]
                if top[m, v] == np.inf:
                    top[m, v] = _score_sets(slot, m, v, choices, ahead, room)
                    work += sets
                most_here += top[m, v]
            work += 30
            if most_here > max(found.limits[0], IMPOSSIBLE):
                if found.used[0] + shares > found.bound.shape[0]:
                    _halve(found)
                _add(state, start, both, bound, now.value[state], choices, room, found)
                work += 2 * shares
    return work


@compiled_inner
def _read_status(
    slot: int, state: int, now: Layer, choices: Choices, status: Ints
) -> tuple[int, int]:
    """The tenants' status in the slot; (slices that retrain, tenants still to start as bits)."""
    mask, still = 0, 0
    for m in range(status.shape[0]):
        place = now.place[state, m]
        if place >= 0 and now.end[state, m] == slot:
            place = DONE
        if place >= 0:
            mask |= choices.place_mask[place]
        elif place == STILL:
            still |= 1 << m
        status[m] = place
    return mask, still


@compiled_inner
def _look_at_places(
    slot: int,
    state: int,
    m: int,
    all_warm: bool,
    now: Layer,
    choices: Choices,
    costs: Costs,
    ahead: Ahead,
    room: Scratch,
) -> None:
    """What every placement brings tenant m in the slot, if it holds it: `serves` and `held`."""
    lead, over, warm_age, waited = choices.lead[m], costs.over[m], costs.warm_age[m], ahead.waited
    serves, held = room.serves, room.held
    for at in range(choices.place_size.shape[0]):
        lived, k = 0, choices.place_size[at]
        if all_warm:
            lived = warm_age
        elif now.owner[state, at] == m:
            lived = min(warm_age, now.age[state, at] + 1)
        paid, weight, closed = 0.0, 1 << (3 * k), lead
        if lived < lead:
            paid = waited[k, slot + 1] - waited[k, max(0, slot - lived)]
            weight, closed = 0, lead - lived - 1
        serves[at, 0] = costs.capability[m, at] * min(1.0, max(0.0, lived + 1.0 - over))
        serves[at, 1], held[at, 0], held[at, 1] = paid, weight, closed


@compiled_inner
def _look_at_sets(
    slot: int, m: int, choices: Choices, costs: Costs, arrivals: Arrivals, room: Scratch
) -> None:
    """`thrown` and `where` of every own set of tenant m."""
    serves, held, thrown, where = room.serves, room.held, room.thrown, room.where
    for i in range(choices.own.shape[1]):
        own = choices.own[m, i]
        if own < 0:
            break
        capability, code, closed, paid = 0.0, 0, choices.lead[m], 0.0
        for n in range(costs.set_places.shape[1]):
            at = costs.set_places[own, n]
            if at < 0:
                break
            capability += serves[at, 0]
            paid += serves[at, 1]
            code += held[at, 0]
            closed = min(closed, held[at, 1])
        thrown[m, own, 0], thrown[m, own, 1] = expected(arrivals, m, slot, capability), paid
        where[m, own, 0], where[m, own, 1] = choices.pattern[m, code], closed


@compiled_inner
def _rent_ahead(slot: int, choices: Choices, ahead: Ahead, room: Scratch) -> float:
    """What the slices that running retrainings leave free can be rented for from `slot` on."""
    own, until, rent = room.own, room.until, ahead.rent
    total, still, slots = 0.0, 0, rent.shape[2] - 1
    for m in range(own.shape[0]):
        still += 1 if own[m] == STILL else 0
    while slot < slots:
        mask, change = 0, slots
        for m in range(own.shape[0]):
            if own[m] >= 0 and until[m] > slot:
                mask |= choices.place_mask[own[m]]
                change = min(change, until[m])
        total += rent[still, mask, change] - rent[still, mask, slot]
        slot = change
    return total


@compiled_inner
def _score_sets(slot: int, m: int, v: int, choices: Choices, ahead: Ahead, room: Scratch) -> float:
    """score[m, v, set]: goodput of the slot and bound on what follows; returns the best."""
    thrown, where, own, until = room.thrown, room.where, room.own[m], room.until[m]
    top, row, after = NEVER, 0, 1 if own == DONE else 0
    accuracy = choices.accuracy[m, 1 if room.status[m] == DONE else 0]
    if own >= 0:
        size = choices.place_size[own]
        row = ahead.row[m, size, 0] + until * ahead.row[m, size, 1] + until - slot - 1
    for i in range(choices.own.shape[1]):
        each = choices.own[m, i]
        if each < 0:
            break
        p, worth = where[m, each, 0], NEVER
        if p >= 0:
            if own >= 0:
                then = float(ahead.running[row, p])
            else:
                then = ahead.values[after, m, slot + 1, where[m, each, 1], p]
            worth = accuracy * thrown[m, each, 0] + thrown[m, each, 1] + then
            top = max(top, worth)
        room.score[m, v, each] = worth
    return top


@compiled_inner
def _add(
    state: int,
    start: int,
    mask: int,
    bound: float,
    earned: float,
    choices: Choices,
    room: Scratch,
    found: Candidates,
) -> None:
    """Add every share of the slices that `mask` leaves free, if its bound beats the limit."""
    shares, status, score = choices.shares, room.status, room.score
    tenants, used = status.shape[0], found.used[0]
    limit = max(found.limits[0], IMPOSSIBLE)
    for share in range(choices.first[mask], choices.first[mask + 1]):
        total, value = bound, earned
        for m in range(tenants):
            total += score[m, room.starts_on[m], shares[share, m]]
        if total <= limit:
            continue
        for m in range(tenants):
            accuracy = choices.accuracy[m, 1 if status[m] == DONE else 0]
            value += accuracy * room.thrown[m, shares[share, m], 0]
        found.state[used], found.start[used], found.share[used] = state, start, share
        found.bound[used], found.value[used] = total, value
        used += 1
    found.used[0] = used


@compiled_inner
def _halve(found: Candidates) -> None:
    """Keep about the better half of the candidates and raise the limit."""
    state, start, share, bound = found.state, found.start, found.share, found.bound
    value, limits, count, used = found.value, found.limits, found.used[0], 0
    middle = bound[found.order[descending(count, bound, found.order), count // 2]]
    limits[0] = max(limits[0], middle)
    limits[1] = max(limits[1], limits[0])
    for i in range(count):
        if bound[i] > limits[0]:
            state[used], start[used], share[used] = state[i], start[i], share[i]
            bound[used], value[used] = bound[i], value[i]
            used += 1
    found.used[0] = used
