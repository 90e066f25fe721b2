"""Which states go on to the next slot.

Drop a state if another one with the same retraining status, after paying to switch to this
state's allocation, would still have as much goodput. Slices can be rearranged so that placements
stay placements: of the states that differ in nothing else, one goes on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.planning.arrays import Bools, Ints
from migrator.planning.exact.tables import NEVER
from migrator.planning.kernels import compiled, compiled_inner
from migrator.planning.survivors.arrivals import Arrivals, expected
from migrator.planning.survivors.beam_search import Costs
from migrator.planning.survivors.states import DONE, Candidates, Choices, Layer

COMPARED = 48
"""States of the same status that a new one is compared with."""


def next_layer(
    slot: int,
    width: int,
    all_warm: bool,
    now: Layer,
    candidates: Candidates,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
) -> tuple[Layer, Ints, float, int]:
    """The best states after the slot, where each comes from, the best bound lost, work.

    Where it comes from: [state, (state before, how it was rearranged)].
    """
    order = np.argsort(-candidates.bound[: candidates.used[0]], kind="stable")
    rows, tenants, places = min(width, len(order)), now.way.shape[1], now.owner.shape[1]
    then = Layer(
        way=np.empty((rows, tenants), np.int64),
        end=np.empty((rows, tenants), np.int64),
        owner=np.empty((rows, places), np.int8),
        age=np.empty((rows, places), np.int32),
        value=np.empty(rows),
    )
    back = np.empty((rows, 2), np.int64)
    context = choices, costs, arrivals
    tables = _tables(len(order), rows, tenants, places)
    kept, lost, work = _keep_best(
        slot, width, all_warm, now, candidates, order, *context, tables, then, back
    )
    layer = Layer(
        then.way[:kept].copy(),
        then.end[:kept].copy(),
        then.owner[:kept].copy(),
        then.age[:kept].copy(),
        then.value[:kept].copy(),
    )
    return layer, back[:kept].copy(), max(float(candidates.limits[1]), lost), work


class _Kept(NamedTuple):
    """Which states are kept so far."""

    used: Bools
    """[rank]: whether the candidate has been looked at"""
    taken: Ints
    """[combination of statuses]: states kept"""
    seen: Ints
    """[hash]: row of a state, -1 free; with open addressing"""
    rows_of_status: Ints
    """[hash, 2]: (first row, last row) of the states with one status; a linked list"""
    next_of_status: Ints
    """[row]: the next one in that list, -1 ends"""
    scratch: Ints
    """[placement]: room for numbers"""


def _tables(ranks: int, rows: int, tenants: int, places: int) -> _Kept:
    # a power of two: its bits less one mask a hash
    spots = 64
    while spots < 4 * rows:
        spots *= 2
    return _Kept(
        used=np.zeros(ranks, np.bool_),
        taken=np.zeros(3**tenants, np.int64),
        seen=np.full(spots, -1, np.int64),
        rows_of_status=np.full((spots, 2), -1, np.int64),
        next_of_status=np.empty(rows, np.int64),
        scratch=np.empty(places, np.int64),
    )


@compiled
def _keep_best(
    slot: int,
    width: int,
    all_warm: bool,
    now: Layer,
    candidates: Candidates,
    order: Ints,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
    tables: _Kept,
    then: Layer,
    back: Ints,
) -> tuple[int, float, int]:
    """Fill `then` in rounds over the ranked candidates; (states, best bound lost, work).

    Half of the states are the best ones. Then every combination of statuses (waiting, retraining,
    done) has a quota, which doubles with every round: ranked by bound alone, the states that leave
    room for later retrainings would disappear.
    """
    ranks, kept, work, quota = order.shape[0], 0, 0, 0
    rank, remaining = 0, ranks
    used, taken, seen = tables.used, tables.taken, tables.seen
    rows_of_status = tables.rows_of_status
    next_of_status, scratch = tables.next_of_status, tables.scratch
    for row in range(then.value.shape[0]):
        # look for a candidate that is to be kept in this row
        while remaining > 0 and kept == row:
            if rank == ranks:  # the next round
                rank, quota = 0, 2 * max(1, quota)
            chosen = rank
            rank += 1
            if used[chosen]:
                continue
            chosen_candidate = order[chosen]
            # the candidate is written to the row; a candidate that is not kept is overwritten
            phase = _set_status(slot, row, chosen_candidate, now, candidates, choices, then)
            if row >= width // 2 and taken[phase] >= quota:
                continue
            used[chosen] = True
            remaining -= 1
            _set_holders(row, chosen_candidate, all_warm, now, candidates, choices, costs, then)
            rearrangement = _rearrange(row, choices, then, scratch)
            spot, status_spot, is_known = _find(row, then, seen, rows_of_status)
            if is_known:  # ranked before this one, so with at least its value
                work += 40
                continue
            first_alike = rows_of_status[status_spot, 0]
            dominated, looked = _is_dominated(
                slot + 1, row, first_alike, next_of_status, then, choices, costs, arrivals, scratch
            )
            work += 40 + 15 * looked
            if not dominated:
                # append it to the list of its status
                seen[spot], next_of_status[row] = row, -1
                if rows_of_status[status_spot, 0] < 0:
                    rows_of_status[status_spot, 0] = row
                else:
                    next_of_status[rows_of_status[status_spot, 1]] = row
                rows_of_status[status_spot, 1] = row
                back[row, 0], back[row, 1] = candidates.state[chosen_candidate], rearrangement
                taken[phase] += 1
                kept += 1
    # candidates that were not tried were lost for lack of room; the first has the best bound
    lost = NEVER
    for rank in range(ranks - 1, -1, -1):
        if not used[rank]:
            lost = candidates.bound[order[rank]]
    return kept, lost, work


@compiled_inner
def _rearrange(row: int, choices: Choices, then: Layer, code: Ints) -> int:
    """Rearrange the state to the one of those alike that has the largest codes; returns how.

    `code`: room for a number per placement. Of all rearrangements of a state the same one is
    chosen, so that states that differ in nothing else become equal.
    """
    way, owner, age, rearrangements = then.way, then.owner, then.age, choices.rearrangements
    places, tenants, best = owner.shape[1], way.shape[1], 0
    # what counts of a placement as one number: age (15 bits), whether it retrains there, holder
    for at in range(places):
        code[at] = (int(owner[row, at]) + 1) * 65536 + age[row, at]
    for m in range(tenants):
        if way[row, m] >= 0:
            code[way[row, m] % places] += 32768
    for rearrangement in range(1, rearrangements.shape[0]):
        for at in range(places):
            difference = code[rearrangements[rearrangement, at]] - code[rearrangements[best, at]]
            if difference != 0:
                if difference > 0:
                    best = rearrangement
                break
    if best > 0:  # rearrangement 0 leaves everything in place
        for m in range(tenants):
            for at in range(places):
                if way[row, m] >= 0 and rearrangements[best, at] == way[row, m] % places:
                    way[row, m] += at - way[row, m] % places
                    break
        for at in range(places):
            held = code[rearrangements[best, at]]
            owner[row, at], age[row, at] = (held >> 16) - 1, held & 32767
    return best


@compiled_inner
def _find(row: int, then: Layer, seen: Ints, rows_of_status: Ints) -> tuple[int, int, bool]:
    """(spot in `seen`, spot in `rows_of_status`, whether the state is known).

    Open addressing: from the spot that the hash gives, on to the first that is free or right.
    """
    owner, age, last, key = then.owner, then.age, seen.shape[0] - 1, 0
    for m in range(then.way.shape[1]):
        way = then.way[row, m]
        key = (key * 1000003 + way) * 1000003 + (then.end[row, m] if way >= 0 else 0)
    status_spot = (key ^ (key >> 17)) & last
    while rows_of_status[status_spot, 0] >= 0 and not _same_status(
        row, rows_of_status[status_spot, 0], then
    ):
        status_spot = (status_spot + 1) & last
    for i in range(owner.shape[1]):
        key = (key * 1000003 + owner[row, i]) * 1000003 + age[row, i]
    spot = (key ^ (key >> 17)) & last
    while seen[spot] >= 0:
        other = seen[spot]
        if _same_status(row, other, then):
            same = True
            for i in range(owner.shape[1]):
                if owner[row, i] != owner[other, i] or age[row, i] != age[other, i]:
                    same = False
            if same:
                return spot, status_spot, True
        spot = (spot + 1) & last
    return spot, status_spot, False


@compiled_inner
def _same_status(row: int, other: int, then: Layer) -> bool:
    """Whether both states have the same retraining status."""
    for m in range(then.way.shape[1]):
        way = then.way[row, m]
        if way != then.way[other, m]:
            return False
        if way >= 0 and then.end[row, m] != then.end[other, m]:
            return False
    return True


@compiled_inner
def _set_status(
    slot: int,
    row: int,
    candidate: int,
    now: Layer,
    candidates: Candidates,
    choices: Choices,
    then: Layer,
) -> int:
    """Write value and retraining status of a candidate; returns the combination of statuses."""
    before, phase, tenants = candidates.state[candidate], 0, then.way.shape[1]
    base, places = choices.accuracy.shape[1] - 1, choices.place_size.shape[0]
    start, combination = divmod(candidates.start[candidate], base**tenants)
    then.value[row] = candidates.value[candidate]
    for m in range(tenants):
        way, end = now.way[before, m], now.end[before, m]
        starts = choices.starts[start, m]
        if starts >= 0:
            way = combination % base * places + starts
            end = slot + choices.durations[m, choices.way_option[way]]
        elif way >= 0 and end == slot:
            way = DONE - way // places
        combination //= base
        then.way[row, m], then.end[row, m] = way, end
        # 0 running, 1 waiting, 2 done: the statuses of all tenants as a number of base 3
        phase = 3 * phase + min(2, max(0, -way))
    return phase


@compiled_inner
def _set_holders(
    row: int,
    candidate: int,
    all_warm: bool,
    now: Layer,
    candidates: Candidates,
    choices: Choices,
    costs: Costs,
    then: Layer,
) -> None:
    """Write which tenant holds each placement, and since when."""
    before, share, owner = candidates.state[candidate], candidates.share[candidate], then.owner
    places = costs.set_places
    for at in range(owner.shape[1]):
        owner[row, at] = -1
    for m in range(then.way.shape[1]):
        placement_set, way = choices.shares[share, m], then.way[row, m]
        for n in range(places.shape[1]):
            if places[placement_set, n] < 0:
                break
            owner[row, places[placement_set, n]] = m
        if way >= 0:
            owner[row, way % owner.shape[1]] = m
    for at in range(owner.shape[1]):
        m, age = owner[row, at], 0
        if m >= 0 and all_warm:  # slot 0 where nothing is known of before: nothing is cold
            age = costs.warm_age[m]
        elif m >= 0 and now.owner[before, at] == m:
            age = min(costs.warm_age[m], now.age[before, at] + 1)
        then.age[row, at] = age


@compiled_inner
def _is_dominated(
    slot: int,
    row: int,
    other: int,
    next_of_status: Ints,
    then: Layer,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
    lacking: Ints,
) -> tuple[bool, int]:
    """(whether a state of the list that begins with `other` is at least as good, rows looked at).

    At most `COMPARED` states are looked at: a state that is kept in vain costs only time.
    """
    looked = 0
    while other >= 0 and looked < COMPARED:
        looked += 1
        if then.value[other] >= then.value[row] and _can_change(
            slot, other, row, then, choices, costs, arrivals, lacking
        ):
            return True, looked
        other = next_of_status[other]
    return False, looked


@compiled_inner
def _best_accuracy(m: int, choices: Choices) -> float:
    """The best accuracy that tenant m may have."""
    best: float = choices.accuracy[m, 0]
    for stage in range(1, choices.accuracy.shape[1]):
        best = max(best, choices.accuracy[m, stage])
    return best


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
    """Whether `other`, changed to the allocation of `row` in `slot`, has at least its goodput.

    What an instance adds beside others is at most what it serves alone. So what `other` misses is
    bounded by what the instances that it lacks would serve alone while they are cold or younger.
    `lacking`: room for the placements that `row` has held for longer.
    """
    owner, age, slots, count = then.owner, then.age, arrivals.ordered.shape[1], 0
    for at in range(owner.shape[1]):
        m = owner[row, at]
        if m >= 0 and (owner[other, at] != m or age[other, at] < age[row, at]):
            lacking[count] = at
            count += 1
    # tenant by tenant, what it misses is taken off the lead
    lead = then.value[other] - then.value[row]
    for i in range(count):
        m, is_first_of_tenant = owner[row, lacking[i]], True
        for j in range(i):
            if owner[row, lacking[j]] == m:
                is_first_of_tenant = False
        if not is_first_of_tenant:
            continue
        # the retraining may end meanwhile: the larger accuracy bounds what is missed
        accuracy = _best_accuracy(m, choices)
        over, warm_age = costs.over[m], costs.warm_age[m]
        for t in range(slot, min(slots, slot + warm_age + 1)):
            missing, slots_ahead = 0.0, float(t - slot)
            for j in range(i, count):
                at = lacking[j]
                if owner[row, at] != m:
                    continue
                # whole slots held by the end of `slot`, and the share served in slot t
                has = age[other, at] + 2.0 if owner[other, at] == m else 1.0
                needs = over + 1.0 if age[row, at] >= warm_age else age[row, at] + 2.0
                share = min(1.0, max(0.0, needs + slots_ahead - over))
                share -= min(1.0, max(0.0, has + slots_ahead - over))
                if share > 0.0:
                    missing += costs.capability[m, at] * share
            if missing > 0.0:
                served = expected(arrivals, m, t, missing)
                lead -= accuracy * served
                lead -= arrivals.penalty[m] * min(arrivals.enough[m, t], served)
                if lead < 0.0:
                    return False
    return True
