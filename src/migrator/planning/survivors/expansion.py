"""Every choice of every state of a slot, with the bound on all plans through it.

A choice is a set of retrainings that start, and a share: one set of placements per tenant that
uses all slices left. Its bound is the sum of what the state has, the rent of the slices that no
running retraining occupies, and per tenant the score of its set. A score depends on the tenant,
its set and whether its retraining starts; so scores are worked out once per state, not per share.
With several configurations those starts are left out first that cannot be part of any choice whose
bound beats the limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.planning.arrays import Bools, Floats, Ints
from migrator.planning.exact.tables import IMPOSSIBLE, NEVER
from migrator.planning.exact.transition import stage_of
from migrator.planning.kernels import compiled, compiled_inner
from migrator.planning.ranking import descending
from migrator.planning.survivors.arrivals import Arrivals, expected
from migrator.planning.survivors.beam_search import Costs
from migrator.planning.survivors.states import DONE, STILL, Candidates, Choices, Layer
from migrator.planning.survivors.values_to_go import Ahead

_ROUNDING = 1e-9
"""What sums of the same numbers in another order may differ by, relative."""


class Scratch(NamedTuple):
    """Room for what is known of one state."""

    brings: Floats
    """[tenant, set, 2]: (throughput of the slot, prices of waiting paid so far)"""
    serves_with: Ints
    """[tenant, set, 2]: (serving pattern, slots from the next on in which nothing new serves)"""
    score: Floats
    """[tenant, start, set]; start: 0 nothing, else 1 + the option of the retraining"""
    top: Floats
    """[tenant, start]: the best score"""
    status_before: Ints
    """[tenant]: its retraining before anything starts"""
    status_then: Ints
    """[tenant]: the same after the choice"""
    until: Ints
    """[tenant]: the end of its retraining after the choice"""
    starts_in: Ints
    """[tenant]: 0 nothing, else 1 + the option"""
    hopeful: Bools
    """[tenant, option]: whether a start may be part of a choice that beats the limit"""
    most: Floats
    """[tenant, 1 + options]: the best score of each start, less what it pays; then the best of
    them"""
    serves: Floats
    """[placement, 2]: (capability in the slot, prices of waiting paid so far)"""
    size_weight: Ints
    """[placement, 2]: (weight of its size where it serves, slots in which it keeps closed)"""


def empty_scratch(choices: Choices, costs: Costs) -> Scratch:
    """Room for the states of one problem."""
    (tenants, options), sets = choices.durations.shape, len(costs.set_places)
    places = len(choices.place_size)
    return Scratch(
        brings=np.empty((tenants, sets, 3)),
        serves_with=np.empty((tenants, sets, 2), np.int64),
        score=np.empty((tenants, options + 1, sets)),
        top=np.empty((tenants, options + 1)),
        status_before=np.empty(tenants, np.int64),
        status_then=np.empty(tenants, np.int64),
        until=np.empty(tenants, np.int64),
        starts_in=np.empty(tenants, np.int64),
        hopeful=np.ones((tenants, options), np.bool_),
        most=np.empty((tenants, options + 1)),
        serves=np.empty((places, 2)),
        size_weight=np.empty((places, 2), np.int64),
    )


@compiled
def expand_states(
    slot: int,
    all_warm: bool,
    now: Layer,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
    ahead: Ahead,
    scratch: Scratch,
    candidates: Candidates,
) -> int:
    """Find every choice of every state whose bound beats the limit; returns the work."""
    tenants, work = now.way.shape[1], 0
    sets, options = costs.set_places.shape[0], choices.durations.shape[1]
    configurations = choices.accuracy.shape[1] - 1
    starts, start_facts, share_begin = choices.starts, choices.start_facts, choices.share_begin
    top, status_before = scratch.top, scratch.status_before
    for state in range(now.value.shape[0]):
        mask, waiting = _read_status(slot, state, now, choices, status_before)
        for m in range(tenants):
            _look_at_places(slot, state, m, all_warm, now, choices, costs, ahead, scratch)
            _look_at_sets(slot, m, choices, costs, arrivals, scratch)
            for started in range(options + 1):
                top[m, started] = np.inf  # not known yet
        work += 4 * tenants * sets
        if configurations > 1:
            work += _find_hopeful(slot, state, now, choices, ahead, candidates, scratch)
        for start in range(starts.shape[0]):
            mask_then = mask | start_facts[start, 0]
            if start_facts[start, 1] & ~waiting or start_facts[start, 0] & mask:
                continue
            if slot + start_facts[start, 2] > ahead.rent.shape[2] - 1:
                continue
            # a start that leaves no room for the minima has no shares; start 0 starts nothing
            if start > 0 and share_begin[mask_then + 1] == share_begin[mask_then]:
                continue
            combination = 0
            while combination >= 0:  # of the configurations of the tenants that start
                if _set_starts(slot, state, start, combination, now, choices, ahead, scratch):
                    number = start * configurations**tenants + combination
                    value = now.value[state]
                    work += _try(
                        slot, state, number, mask_then, value, choices, ahead, scratch, candidates
                    )
                combination = _next_combination(start, combination, choices)
    return work


@compiled_inner
def _try(
    slot: int,
    state: int,
    number: int,
    mask: int,
    value: float,
    choices: Choices,
    ahead: Ahead,
    scratch: Scratch,
    candidates: Candidates,
) -> int:
    """Add all choices with these starts whose bound beats the limit; returns the work."""
    shares, work = choices.share_begin[mask + 1] - choices.share_begin[mask], 30
    bound, top = value + _rent_ahead(slot + 1, choices, ahead, scratch), scratch.top
    # the best score of every tenant, whether or not the sets fit together: if that is not enough,
    # no share is
    most_here = bound
    for m in range(top.shape[0]):
        started = scratch.starts_in[m]
        if top[m, started] == np.inf:
            top[m, started] = _score_sets(slot, m, started, choices, ahead, scratch)
            work += scratch.score.shape[2]
        most_here += top[m, started]
    if most_here > max(candidates.limits[0], IMPOSSIBLE):
        if candidates.used[0] + shares > candidates.bound.shape[0]:
            _halve(candidates)
        _add(state, number, mask, bound, value, choices, scratch, candidates)
        work += 2 * shares
    return work


@compiled_inner
def _next_combination(start: int, combination: int, choices: Choices) -> int:
    """The next configurations of the tenants that start; -1 after the last.

    The digits of a combination are the configurations; those of other tenants are 0.
    """
    base, weight = choices.accuracy.shape[1] - 1, 1
    for m in range(choices.starts.shape[1]):
        if choices.starts[start, m] >= 0:
            if combination // weight % base < base - 1:
                return combination + weight
            combination -= (base - 1) * weight
        weight *= base
    return -1


@compiled_inner
def _set_starts(
    slot: int,
    state: int,
    start: int,
    combination: int,
    now: Layer,
    choices: Choices,
    ahead: Ahead,
    scratch: Scratch,
) -> bool:
    """Set the tenants' retrainings after the choice; whether all starts are hopeful and in time."""
    status_then, until, starts_in = scratch.status_then, scratch.until, scratch.starts_in
    base, places, weight = choices.accuracy.shape[1] - 1, choices.place_size.shape[0], 1
    for m in range(status_then.shape[0]):
        status_then[m], until[m], starts_in[m] = scratch.status_before[m], now.end[state, m], 0
        place = choices.starts[start, m]
        if place >= 0:
            way = combination // weight % base * places + place
            option = choices.way_option[way]
            duration = choices.durations[m, option]
            if duration == 0 or slot + duration > ahead.rent.shape[2] - 1:
                return False
            if not scratch.hopeful[m, option]:
                return False
            status_then[m], until[m], starts_in[m] = way, slot + duration, option + 1
        weight *= base
    return True


@compiled_inner
def _find_hopeful(
    slot: int,
    state: int,
    now: Layer,
    choices: Choices,
    ahead: Ahead,
    candidates: Candidates,
    scratch: Scratch,
) -> int:
    """Fill `hopeful`; returns the work.

    Whatever else starts, a start takes at least its prices from the rent of the slices that nothing
    retrains on. So the rent without any start, the best score of the start less its prices, and the
    best of every other tenant bound all choices with it.
    """
    (tenants, options), work = choices.durations.shape, 0
    top, most, sizes, slots = (
        scratch.top,
        scratch.most,
        ahead.retrained.shape[0],
        ahead.rent.shape[2] - 1,
    )
    for m in range(tenants):
        scratch.status_then[m], scratch.until[m] = scratch.status_before[m], now.end[state, m]
    bound = now.value[state] + _rent_ahead(slot + 1, choices, ahead, scratch)
    for m in range(tenants):
        top[m, 0] = most[m, options] = _score_sets(slot, m, 0, choices, ahead, scratch)
        work += scratch.score.shape[2]
        for option in range(options):
            until, k = slot + choices.durations[m, option], option % sizes
            most[m, option] = NEVER
            if scratch.status_before[m] != STILL or until == slot or until > slots:
                continue
            scratch.until[m] = until
            top[m, 1 + option] = _score_sets(slot, m, 1 + option, choices, ahead, scratch)
            work += scratch.score.shape[2]
            paid = ahead.retrained[k, until] - ahead.retrained[k, slot + 1]
            most[m, option] = top[m, 1 + option] - paid
            most[m, options] = max(most[m, options], most[m, option])
        bound += most[m, options]
    limit = candidates.limits[0]
    limit -= _ROUNDING * (1.0 + abs(limit))
    for m in range(tenants):
        for option in range(options):
            hopeful = bound - most[m, options] + most[m, option] > limit
            scratch.hopeful[m, option] = hopeful
    return work


@compiled_inner
def _read_status(
    slot: int, state: int, now: Layer, choices: Choices, status_before: Ints
) -> tuple[int, int]:
    """The tenants' status in the slot; (slices that retrain, tenants still to start as bits)."""
    mask, waiting = 0, 0
    for m in range(status_before.shape[0]):
        way = now.way[state, m]
        if way >= 0 and now.end[state, m] == slot:
            way = DONE - way // choices.place_size.shape[0]
        if way >= 0:
            mask |= choices.way_mask[way]
        elif way == STILL:
            waiting |= 1 << m
        status_before[m] = way
    return mask, waiting


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
    scratch: Scratch,
) -> None:
    """What every placement brings tenant m in the slot, if it holds it: `serves`, `size_weight`.

    The prices let an instance serve only after the lead, and it pays for waiting when it begins
    to. A state whose instance still waits is credited what it has paid in the slots before.
    """
    lead, over, warm_age, waited = choices.lead[m], costs.over[m], costs.warm_age[m], ahead.waited
    serves, size_weight = scratch.serves, scratch.size_weight
    for at in range(choices.place_size.shape[0]):
        age, k = 0, choices.place_size[at]
        if all_warm:
            age = warm_age
        elif now.owner[state, at] == m:
            age = min(warm_age, now.age[state, at] + 1)
        # sizes are counted in base 8: a sum of weights is a multiset
        paid, weight, closed_slots = 0.0, 1 << (3 * k), lead
        if age < lead:
            paid = waited[k, slot + 1] - waited[k, max(0, slot - age)]
            weight, closed_slots = 0, lead - age - 1
        serves[at, 0] = costs.capability[m, at] * min(1.0, max(0.0, age + 1.0 - over))
        serves[at, 1], size_weight[at, 0], size_weight[at, 1] = paid, weight, closed_slots


@compiled_inner
def _look_at_sets(
    slot: int, m: int, choices: Choices, costs: Costs, arrivals: Arrivals, scratch: Scratch
) -> None:
    """`brings` and `serves_with` of every placement set of tenant m."""
    serves, size_weight, brings = scratch.serves, scratch.size_weight, scratch.brings
    serves_with = scratch.serves_with
    for i in range(choices.sets_of.shape[1]):
        placement_set = choices.sets_of[m, i]
        if placement_set < 0:
            break
        capability, code, closed_slots, paid = 0.0, 0, choices.lead[m], 0.0
        for n in range(costs.set_places.shape[1]):
            at = costs.set_places[placement_set, n]
            if at < 0:
                break
            capability += serves[at, 0]
            paid += serves[at, 1]
            code += size_weight[at, 0]
            closed_slots = min(closed_slots, size_weight[at, 1])
        served = expected(arrivals, m, slot, capability)
        brings[m, placement_set, 0] = served
        brings[m, placement_set, 1] = paid
        short = max(0.0, arrivals.enough[m, slot] - served)
        brings[m, placement_set, 2] = arrivals.penalty[m] * short
        serves_with[m, placement_set, 0] = choices.pattern[m, code]
        serves_with[m, placement_set, 1] = closed_slots


@compiled_inner
def _rent_ahead(slot: int, choices: Choices, ahead: Ahead, scratch: Scratch) -> float:
    """What the slices that running retrainings leave free can be rented for from `slot` on.

    Stretch by stretch: the mask changes when a retraining ends.
    """
    status_then, until, rent = scratch.status_then, scratch.until, ahead.rent
    total, waiting, slots = 0.0, 0, rent.shape[2] - 1
    for m in range(status_then.shape[0]):
        waiting += 1 if status_then[m] == STILL else 0
    while slot < slots:
        mask, change = 0, slots
        for m in range(status_then.shape[0]):
            if status_then[m] >= 0 and until[m] > slot:
                mask |= choices.way_mask[status_then[m]]
                change = min(change, until[m])
        total += rent[waiting, mask, change] - rent[waiting, mask, slot]
        slot = change
    return total


@compiled_inner
def _score_sets(
    slot: int, m: int, started: int, choices: Choices, ahead: Ahead, scratch: Scratch
) -> float:
    """score[m, started, set]: goodput of the slot and bound on what follows; returns the best."""
    brings, serves_with, status = scratch.brings, scratch.serves_with, scratch.status_before[m]
    until, top, row = scratch.until[m], NEVER, -1
    accuracy = choices.accuracy[m, stage_of(status)]
    option = choices.way_option[status] if status >= 0 else started - 1
    if option >= 0:
        row = ahead.row[m, option, 0] + until * ahead.row[m, option, 1] + until - slot - 1
    for i in range(choices.sets_of.shape[1]):
        placement_set = choices.sets_of[m, i]
        if placement_set < 0:
            break
        p, worth = serves_with[m, placement_set, 0], NEVER
        if p >= 0:
            if row >= 0:
                worth_after = float(ahead.running[row, p])
            else:
                closed = serves_with[m, placement_set, 1]
                worth_after = ahead.values[stage_of(status), m, slot + 1, closed, p]
            goodput = accuracy * brings[m, placement_set, 0] - brings[m, placement_set, 2]
            worth = goodput + brings[m, placement_set, 1] + worth_after
            top = max(top, worth)
        scratch.score[m, started, placement_set] = worth
    return top


@compiled_inner
def _add(
    state: int,
    start: int,
    mask: int,
    bound: float,
    earned: float,
    choices: Choices,
    scratch: Scratch,
    candidates: Candidates,
) -> None:
    """Add every share of the slices that `mask` leaves free, if its bound beats the limit."""
    shares, status_before, score = choices.shares, scratch.status_before, scratch.score
    tenants, used = status_before.shape[0], candidates.used[0]
    limit = max(candidates.limits[0], IMPOSSIBLE)
    for share in range(choices.share_begin[mask], choices.share_begin[mask + 1]):
        total, value = bound, earned
        for m in range(tenants):
            total += score[m, scratch.starts_in[m], shares[share, m]]
        if total <= limit:
            continue
        for m in range(tenants):
            accuracy = choices.accuracy[m, stage_of(status_before[m])]
            value += accuracy * scratch.brings[m, shares[share, m], 0]
            value -= scratch.brings[m, shares[share, m], 2]
        candidates.state[used], candidates.start[used], candidates.share[used] = state, start, share
        candidates.bound[used], candidates.value[used] = total, value
        used += 1
    candidates.used[0] = used


@compiled_inner
def _halve(candidates: Candidates) -> None:
    """Keep about the better half of the candidates and raise the limit.

    The limit is then the largest bound that was lost.
    """
    state, start, share = candidates.state, candidates.start, candidates.share
    bound = candidates.bound
    value, limits, count, kept = candidates.value, candidates.limits, candidates.used[0], 0
    middle = bound[candidates.order[descending(count, bound, candidates.order), count // 2]]
    limits[0] = max(limits[0], middle)
    limits[1] = max(limits[1], limits[0])
    for i in range(count):
        if bound[i] > limits[0]:
            state[kept], start[kept], share[kept] = state[i], start[i], share[i]
            bound[kept], value[kept] = bound[i], value[i]
            kept += 1
    candidates.used[0] = kept
