"""One slot of the search: what may follow each state, with the bound on all plans through it."""

from __future__ import annotations

import numpy as np

from migrator.plan.exact.expand import descending
from migrator.plan.exact.space import Floats, Ints
from migrator.plan.exact.tables import IMPOSSIBLE, NEVER
from migrator.plan.kernels import compiled, compiled_inner, compiled_leaf
from migrator.plan.survivors.ahead import Ahead
from migrator.plan.survivors.options import Arrivals, expected
from migrator.plan.survivors.search import Costs
from migrator.plan.survivors.states import DONE, STILL, Candidates, Choices, Layer


@compiled
def expand(
    slot: int,
    all_warm: bool,
    now: Layer,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
    ahead: Ahead,
    found: Candidates,
) -> int:
    """Find every choice of every state whose bound beats the limit; returns the work."""
    tenants, slots, work = now.place.shape[1], ahead.rent.shape[2] - 1, 0
    sets, sizes = costs.set_places.shape[0], choices.durations.shape[1]
    thrown, where = np.empty((tenants, sets, 2)), np.empty((tenants, sets, 2), np.int64)
    # scores by what the tenant starts: nothing, or a retraining on a size
    score, top = np.empty((tenants, sizes + 1, sets)), np.empty((tenants, sizes + 1))
    status, own = np.empty(tenants, np.int64), np.empty(tenants, np.int64)
    until, starts_on = np.empty(tenants, np.int64), np.empty(tenants, np.int64)
    for state in range(now.value.shape[0]):
        mask, still = _read_status(slot, state, now, choices, status)
        for m in range(tenants):
            _look_at_sets(
                slot, state, m, all_warm, now, choices, costs, arrivals, ahead, thrown, where
            )
            for v in range(sizes + 1):
                top[m, v] = np.inf  # not known yet
        work += 4 * tenants * sets
        for start in range(choices.starts.shape[0]):
            taken, starting = choices.start_facts[start, 0], choices.start_facts[start, 1]
            both = mask | taken
            if starting & ~still or taken & mask or slot + choices.start_facts[start, 2] > slots:
                continue
            shares = choices.first[both + 1] - choices.first[both]
            if start > 0 and shares == 0:
                continue
            for m in range(tenants):
                own[m], until[m], starts_on[m] = status[m], now.end[state, m], 0
                if choices.starts[start, m] >= 0:
                    own[m] = choices.starts[start, m]
                    k = choices.place_size[own[m]]
                    until[m], starts_on[m] = slot + choices.durations[m, k], k + 1
            bound = now.value[state] + _rent_ahead(slot + 1, own, until, choices, ahead)
            most_here = bound
            for m in range(tenants):
                v = starts_on[m]
                if top[m, v] == np.inf:
                    top[m, v] = _score_sets(
                        slot, m, v, status, own, until, choices, ahead, thrown, where, score
                    )
                    work += sets
                most_here += top[m, v]
            work += 30
            if most_here > max(found.limits[0], IMPOSSIBLE):
                if found.used[0] + shares > found.bound.shape[0]:
                    _halve(found)
                _add(
                    state, start, both, bound, now, choices, status, starts_on, thrown, score, found
                )
                work += 2 * shares
    return work


@compiled_leaf
def _read_status(
    slot: int, state: int, now: Layer, choices: Choices, status: Ints
) -> tuple[int, int]:
    """The tenants' status in the slot; (slices that retrain, tenants still to start as bits)."""
    mask, still = 0, 0
    for m in range(status.shape[0]):
        status[m] = now.place[state, m]
        if status[m] >= 0 and now.end[state, m] == slot:
            status[m] = DONE
        if status[m] >= 0:
            mask |= choices.place_mask[status[m]]
        elif status[m] == STILL:
            still |= 1 << m
    return mask, still


@compiled_leaf
def _look_at_sets(
    slot: int,
    state: int,
    m: int,
    all_warm: bool,
    now: Layer,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
    ahead: Ahead,
    thrown: Floats,
    where: Ints,
) -> None:
    """For every own set of tenant m: thrown[m, set] = (throughput of the slot, rents of waiting
    paid so far); where[m, set] = (serving pattern, slots closed from the next slot on)."""
    lead, over, warm_age, waited = choices.lead[m], costs.over[m], costs.warm_age[m], ahead.waited
    for i in range(choices.own.shape[1]):
        own = choices.own[m, i]
        if own < 0:
            break
        capability, code, closed, paid = 0.0, 0, lead, 0.0
        for n in range(costs.set_places.shape[1]):
            at = costs.set_places[own, n]
            if at < 0:
                break
            lived = 0
            if all_warm:
                lived = warm_age
            elif now.owner[state, at] == m:
                lived = min(warm_age, now.age[state, at] + 1)
            share = min(1.0, max(0.0, lived + 1.0 - over))
            capability += costs.capability[m, at] * share
            k = choices.place_size[at]
            if lived >= lead:
                code += 1 << (3 * k)
            else:
                closed = min(closed, lead - lived - 1)
                paid += waited[k, slot + 1] - waited[k, max(0, slot - lived)]
        thrown[m, own, 0], thrown[m, own, 1] = expected(arrivals, m, slot, capability), paid
        where[m, own, 0], where[m, own, 1] = choices.pattern[m, code], closed


@compiled_leaf
def _rent_ahead(slot: int, own: Ints, until: Ints, choices: Choices, ahead: Ahead) -> float:
    """What the slices that running retrainings leave free can be rented for from `slot` on."""
    total, still, slots = 0.0, 0, ahead.rent.shape[2] - 1
    for m in range(own.shape[0]):
        still += 1 if own[m] == STILL else 0
    while slot < slots:
        mask, change = 0, slots
        for m in range(own.shape[0]):
            if own[m] >= 0 and until[m] > slot:
                mask |= choices.place_mask[own[m]]
                change = min(change, until[m])
        total += ahead.rent[still, mask, change] - ahead.rent[still, mask, slot]
        slot = change
    return total


@compiled_leaf
def _score_sets(
    slot: int,
    m: int,
    v: int,
    status: Ints,
    own: Ints,
    until: Ints,
    choices: Choices,
    ahead: Ahead,
    thrown: Floats,
    where: Ints,
    score: Floats,
) -> float:
    """score[m, v, set]: goodput of the slot and bound on what follows; returns the best."""
    top, row = NEVER, 0
    after, done = 1 if own[m] == DONE else 0, 1 if status[m] == DONE else 0
    if own[m] >= 0:
        size = choices.place_size[own[m]]
        row = ahead.row[m, size, 0] + until[m] * ahead.row[m, size, 1] + until[m] - slot - 1
    for i in range(choices.own.shape[1]):
        each = choices.own[m, i]
        if each < 0:
            break
        p = where[m, each, 0]
        if p < 0:
            score[m, v, each] = NEVER
            continue
        if own[m] >= 0:
            then = float(ahead.running[row, p])
        else:
            then = ahead.values[after, m, slot + 1, where[m, each, 1], p]
        goodput = choices.accuracy[m, done] * thrown[m, each, 0]
        score[m, v, each] = goodput + thrown[m, each, 1] + then
        top = max(top, score[m, v, each])
    return top


@compiled_leaf
def _add(
    state: int,
    start: int,
    mask: int,
    bound: float,
    now: Layer,
    choices: Choices,
    status: Ints,
    starts_on: Ints,
    thrown: Floats,
    score: Floats,
    found: Candidates,
) -> None:
    """Add every share of the slices that `mask` leaves free, if its bound beats the limit."""
    tenants, used = status.shape[0], found.used[0]
    for share in range(choices.first[mask], choices.first[mask + 1]):
        total, value = bound, now.value[state]
        for m in range(tenants):
            total += score[m, starts_on[m], choices.shares[share, m]]
        if total <= max(found.limits[0], IMPOSSIBLE):
            continue
        for m in range(tenants):
            done = 1 if status[m] == DONE else 0
            value += choices.accuracy[m, done] * thrown[m, choices.shares[share, m], 0]
        found.state[used], found.start[used], found.share[used] = state, start, share
        found.bound[used], found.value[used] = total, value
        used += 1
    found.used[0] = used


@compiled_inner
def _halve(found: Candidates) -> None:
    """Keep about the better half of the candidates and raise the limit."""
    count, used = found.used[0], 0
    middle = found.bound[descending(found.bound[:count])[count // 2]]
    found.limits[0] = max(found.limits[0], middle)
    found.limits[1] = max(found.limits[1], found.limits[0])
    for i in range(count):
        if found.bound[i] > found.limits[0]:
            found.state[used], found.start[used] = found.state[i], found.start[i]
            found.share[used], found.bound[used] = found.share[i], found.bound[i]
            found.value[used] = found.value[i]
            used += 1
    found.used[0] = used
