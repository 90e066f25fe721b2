"""Search over real allocations and retrainings together, pruned by the prices.

A state is the retraining status of every tenant, the tenant that holds each placement, and since
when. Every slot, each state tries every retraining that may start and every share of the slices
left; its goodput so far plus what prices say can still come is a bound on all plans through it.
A state goes on unless its bound does not beat the best plan, or another one with the same status
could change to its allocation at once and still be ahead. Where a slot has more states than
allowed, the largest bound that was dropped is kept: it certifies what the pass may have missed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from migrator.core.instance import Instance, Kind, Task
from migrator.core.plan import Allocation
from migrator.core.problem import Problem
from migrator.plan.exact.space import Floats, Ints, Schedule, Space, Start
from migrator.plan.exact.tables import IMPOSSIBLE, NEVER
from migrator.plan.kernels import compiled
from migrator.plan.survivors.options import Arrivals, Menus, expected
from migrator.plan.survivors.prices import (
    RETRAINING,
    WAITING,
    Prices,
    best_share,
    rooms_beside,
    scratch_for,
    waiting_rents,
)
from migrator.plan.survivors.search import Costs, States
from migrator.plan.survivors.serving import Serving, Shares

STILL, DONE = -1, -2
"""Retraining status of a tenant that has not started and of one that has completed."""
NARROW = 12
"""States a slot that even a pass without budget keeps: it must arrive with some plan."""
COMPARED = 48
"""States of the same status that a new one is compared with."""
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Float32s = npt.NDArray[np.float32]


class Ahead(NamedTuple):
    """What each tenant can still earn at the prices, and what the board can still rent out.

    `closed`: slots in which nothing that is new to the tenant can begin to serve.
    """

    done: Floats
    """[tenant, slot, closed, pattern serving before the slot]"""
    still: Floats
    """[tenant, slot, closed, pattern]: retraining not started"""
    running: Float32s
    """[row, pattern]; row = first + end x stride + (end - slot)"""
    row: Ints
    """[tenant, size, 2]: (first, stride)"""
    waited: Floats
    """[size, slot]: sums of the prices of waiting before the slot"""
    rent: Floats
    """[tenants still to start, mask, slot]: best rents summed up to the slot"""
    known: Ints
    """[tenants, mask]: 1 where `rent` has been filled"""


class Choices(NamedTuple):
    """Every share of the free slices for every mask, one after another."""

    shares: Ints
    """[n, tenant] -> own set"""
    first: Ints
    """[mask + 1]: where its shares begin"""
    own: Ints
    """[tenant, n]: own sets that occur, -1 ends"""
    places: Ints
    """[own set, n]: its placements; -1 ends"""
    pattern: Ints
    """[tenant, code]: serving pattern of a sum of size weights"""
    place_size: Ints
    place_mask: Ints


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


def tabulate(serving: Serving, shares: Shares, prices: Prices, most: int) -> Ahead:
    """The values to go at these prices."""
    tenants, slots, width = prices.pattern.shape
    sizes = serving.durations.shape[1]
    closed = int(serving.lead.max()) + 1
    row, rows = np.zeros((tenants, sizes, 2), np.int64), 0
    for m in range(tenants):
        for k in range(sizes):
            if serving.durations[m, k] > 0:
                row[m, k] = rows, serving.durations[m, k] + 1
                rows += (slots + 1) * int(serving.durations[m, k] + 1)
        if serving.end_size[m] >= 0:
            row[m, serving.end_size[m]] = rows, 0
            rows += int(serving.end[m]) + 1
    sums = np.zeros((2, sizes, slots + 1))
    sums[:, :, 1:] = prices.beside.cumsum(axis=1).transpose(0, 2, 1)
    ahead = Ahead(
        done=np.full((tenants, slots + 1, closed, width), NEVER),
        still=np.full((tenants, slots + 1, closed, width), NEVER),
        running=np.full((rows + 1, width), NEVER, np.float32),
        row=row,
        waited=sums[WAITING],
        rent=np.zeros((most + 1, len(shares.placeable), slots + 1)),
        known=np.zeros((most + 1, len(shares.placeable)), np.int64),
    )
    for m in range(tenants):
        _tabulate(m, serving, prices.pattern[m], sums[WAITING], sums[RETRAINING], ahead)
    return ahead


@compiled
def _tabulate(
    m: int, serving: Serving, cost: Floats, waited: Floats, rents: Floats, ahead: Ahead
) -> None:
    slots, patterns, lead = cost.shape[0], serving.patterns[m], serving.lead[m]
    held_rents = waiting_rents(m, serving, waited)
    done, still, durations = ahead.done[m], ahead.still[m], serving.durations[m]
    done[slots, :, :patterns] = serving.later[m]
    if serving.optional[m]:
        still[slots, :, :patterns] = 0.0
    for t in range(slots - 1, -1, -1):
        for c in range(lead + 1):
            later = done[t + 1, max(c - 1, 0)]
            _back(t, m, 1, c > 0, serving, cost, held_rents, later, done[t, c])
    for k in range(durations.shape[0]):
        if durations[k] > 0:
            _fill_running(m, k, durations[k], 1, slots, serving, cost, held_rents, ahead)
        elif k == serving.end_size[m]:
            end = serving.end[m]
            _fill_running(m, k, end, end, end, serving, cost, held_rents, ahead)
    if durations.max() == 0:
        return
    for t in range(slots - 1, -1, -1):
        for c in range(lead + 1):
            later = still[t + 1, max(c - 1, 0)]
            _back(t, m, 0, c > 0, serving, cost, held_rents, later, still[t, c])
            for k in range(durations.shape[0]):
                end = t + durations[k]
                if durations[k] > 0 and end <= slots:
                    first, stride = ahead.row[m, k, 0], ahead.row[m, k, 1]
                    paid = rents[k, end] - rents[k, t]
                    for p in range(patterns):
                        worth = ahead.running[first + end * stride + durations[k], p] - paid
                        still[t, c, p] = max(still[t, c, p], worth)


@compiled
def _fill_running(
    m: int,
    k: int,
    longest: int,
    low: int,
    high: int,
    serving: Serving,
    cost: Floats,
    waited: Floats,
    ahead: Ahead,
) -> None:
    """What tenant m can earn while it retrains on size k, for every end from `low` to `high`."""
    patterns, first, stride = serving.patterns[m], ahead.row[m, k, 0], ahead.row[m, k, 1]
    value, earlier = np.empty(patterns), np.empty(patterns)
    for end in range(low, high + 1):
        for p in range(patterns):
            value[p] = ahead.done[m, end, 0, serving.with_size[m, p, k]]
        for left in range(min(end, longest) + 1):
            if left > 0:
                _back(end - left, m, 0, False, serving, cost, waited, value, earlier)
                value[:] = earlier
            for p in range(patterns):
                # rounded up: single precision must keep it a bound
                up = value[p] + abs(value[p]) * 1.2e-7 + 1e-6
                ahead.running[first + end * stride + left, p] = up


@compiled
def _back(
    t: int,
    m: int,
    done: int,
    closed: bool,
    serving: Serving,
    cost: Floats,
    waited: Floats,
    later: Floats,
    now: Floats,
) -> None:
    """now[p]: best from slot t on when p served before; if `closed`, nothing new begins in t."""
    steps, fewer, accuracy = serving.steps[m], serving.fewer[m], serving.accuracy[m, done]
    for p in range(serving.patterns[m]):
        now[p] = NEVER
    for s in range(steps.shape[0]):
        u, w, new = steps[s, 0], steps[s, 1], steps[s, 2]
        if u < 0:
            break
        if u != w and (closed or t < serving.first_new[m]):
            continue
        worth = accuracy * serving.served[m, t, s] - cost[t, w] - waited[t, new] + later[w]
        now[u] = max(now[u], worth)
    for i in range(fewer.shape[0]):
        if fewer[i, 0] < 0:
            break
        now[fewer[i, 0]] = max(now[fewer[i, 0]], now[fewer[i, 1]])


@compiled
def _fill_rent(
    still: int, mask: int, shares: Shares, pattern: Floats, beside: Floats, ahead: Ahead
) -> None:
    waiting, retraining, fitting = rooms_beside(shares, mask, still)
    scratch = scratch_for(shares)
    for t in range(beside.shape[1]):
        earned, _, _, _ = best_share(
            t, shares, waiting, retraining, fitting, pattern, beside, scratch
        )
        ahead.rent[still, mask, t + 1] = ahead.rent[still, mask, t] + earned
    ahead.known[still, mask] = 1


@compiled
def _rent_ahead(
    slot: int,
    slots: int,
    own: Ints,
    until: Ints,
    place_mask: Ints,
    shares: Shares,
    pattern: Floats,
    beside: Floats,
    ahead: Ahead,
) -> float:
    """What the slices that running retrainings leave free can be rented for from `slot` on."""
    total, still = 0.0, 0
    for m in range(own.shape[0]):
        still += 1 if own[m] == STILL else 0
    while slot < slots:
        mask, change = 0, slots
        for m in range(own.shape[0]):
            if own[m] >= 0 and until[m] > slot:
                mask |= place_mask[own[m]]
                change = min(change, until[m])
        if ahead.known[still, mask] == 0:
            _fill_rent(still, mask, shares, pattern, beside, ahead)
        total += ahead.rent[still, mask, change] - ahead.rent[still, mask, slot]
        slot = change
    return total


@compiled
def _look_at_sets(
    slot: int,
    m: int,
    all_warm: bool,
    owner: Int8s,
    age: Int32s,
    costs: Costs,
    serving: Serving,
    choices: Choices,
    arrivals: Arrivals,
    waited: Floats,
    thrown: Floats,
    where: Ints,
) -> None:
    """For every own set of tenant m: thrown[set] = (throughput of the slot, rents of waiting paid
    so far); where[set] = (serving pattern, slots closed from the next slot on)."""
    lead = serving.lead[m]
    for own in choices.own[m]:
        if own < 0:
            break
        capability, code, closed, paid = 0.0, 0, lead, 0.0
        for at in choices.places[own]:
            if at < 0:
                break
            lived = 0
            if all_warm:
                lived = costs.warm_age[m]
            elif owner[at] == m:
                lived = min(costs.warm_age[m], age[at] + 1)
            share = min(1.0, max(0.0, lived + 1.0 - costs.over[m]))
            capability += costs.capability[m, at] * share
            k = choices.place_size[at]
            if lived >= lead:
                code += 1 << (3 * k)
            else:
                closed = min(closed, lead - lived - 1)
                paid += waited[k, slot + 1] - waited[k, max(0, slot - lived)]
        thrown[own, 0], thrown[own, 1] = expected(arrivals, m, slot, capability), paid
        where[own, 0], where[own, 1] = choices.pattern[m, code], closed


@compiled
def _score_sets(
    slot: int,
    m: int,
    status: int,
    until: int,
    done: int,
    serving: Serving,
    choices: Choices,
    ahead: Ahead,
    thrown: Floats,
    where: Ints,
    score: Floats,
) -> float:
    """score[set]: goodput of the slot and bound on what follows for tenant m; returns the best."""
    top = NEVER
    size = choices.place_size[status] if status >= 0 else 0
    for own in choices.own[m]:
        if own < 0:
            break
        p, closed = where[own, 0], where[own, 1]
        if p < 0:
            score[own] = NEVER
            continue
        if status == STILL:
            then = ahead.still[m, slot + 1, closed, p]
        elif status == DONE:
            then = ahead.done[m, slot + 1, closed, p]
        else:
            row = ahead.row[m, size, 0] + until * ahead.row[m, size, 1] + until - slot - 1
            then = float(ahead.running[row, p])
        score[own] = serving.accuracy[m, done] * thrown[own, 0] + thrown[own, 1] + then
        top = max(top, score[own])
    return top


@compiled
def expand(  # noqa: PLR0912, PLR0915 (one loop over states, starts and shares)
    slot: int,
    incumbent: float,
    width: int,
    all_warm: bool,
    now: Layer,
    shares: Shares,
    pattern: Floats,
    beside: Floats,
    serving: Serving,
    costs: Costs,
    choices: Choices,
    arrivals: Arrivals,
    ahead: Ahead,
) -> tuple[Ints, Ints, Int8s, Int32s, Floats, Ints, float, int]:
    """The next slot's states (their columns), the state each comes from, what was lost, work."""
    tenants, slots = now.place.shape[1], pattern.shape[1]
    sets, sizes = choices.places.shape[0], serving.durations.shape[1]
    thrown, where = np.empty((tenants, sets, 2)), np.empty((tenants, sets, 2), np.int64)
    score = np.empty((tenants, sizes + 1, sets))
    top, scored = np.empty((tenants, sizes + 1)), np.empty((tenants, sizes + 1), np.bool_)
    room = 64 * width + 4096
    state_of, status_of = np.empty(room, np.int64), np.empty(room, np.int64)
    share_of, bound_of = np.empty(room, np.int64), np.empty(room)
    value_of = np.empty(room)
    used, least, missed, work = 0, incumbent, NEVER, 0
    most = 64
    st_place, st_end = np.empty((most, tenants), np.int64), np.empty((most, tenants), np.int64)
    statuses = 0
    variant = np.empty(tenants, np.int64)
    own, until = np.empty(tenants, np.int64), np.empty(tenants, np.int64)
    done = np.empty(tenants, np.int64)
    depth_place = np.empty((4096, tenants), np.int64)
    depth_end = np.empty((4096, tenants), np.int64)
    depth_next = np.empty(4096, np.int64)
    for state in range(now.value.shape[0]):
        own[:], until[:] = now.place[state], now.end[state]
        for m in range(tenants):
            if own[m] >= 0 and until[m] == slot:
                own[m] = DONE
            done[m] = 1 if own[m] == DONE else 0
            _look_at_sets(
                slot, m, all_warm, now.owner[state], now.age[state], costs, serving, choices,
                arrivals, ahead.waited, thrown[m], where[m],
            )  # fmt: skip
        work += 8 * tenants * sets
        scored[:] = False
        depth_place[0], depth_end[0], depth_next[0] = own, until, 0
        depth = 1
        base = own.copy()
        while depth > 0:
            depth -= 1
            own[:], until[:] = depth_place[depth], depth_end[depth]
            mask = 0
            for m in range(tenants):
                mask |= choices.place_mask[own[m]] if own[m] >= 0 else 0
            for m in range(depth_next[depth], tenants):
                if own[m] != STILL:
                    continue
                for at in range(choices.place_mask.shape[0]):
                    taken = choices.place_mask[at]
                    duration = serving.durations[m, choices.place_size[at]]
                    if taken & mask or duration == 0 or slot + duration > slots:
                        continue
                    if choices.first[mask | taken] == choices.first[(mask | taken) + 1]:
                        continue
                    depth_place[depth], depth_end[depth] = own, until
                    depth_place[depth, m], depth_end[depth, m] = at, slot + duration
                    depth_next[depth] = m + 1
                    depth += 1
            bound = now.value[state] + _rent_ahead(
                slot + 1, slots, own, until, choices.place_mask, shares, pattern, beside, ahead
            )
            most_here = bound
            for m in range(tenants):
                variant[m] = 0
                if base[m] == STILL and own[m] >= 0:
                    variant[m] = choices.place_size[own[m]] + 1
                v = variant[m]
                if not scored[m, v]:
                    top[m, v] = _score_sets(
                        slot, m, own[m], until[m], done[m], serving, choices, ahead, thrown[m],
                        where[m], score[m, v],
                    )  # fmt: skip
                    scored[m, v] = True
                    work += 2 * sets
                most_here += top[m, v]
            work += 60
            if most_here <= least or most_here <= IMPOSSIBLE:
                continue
            number = -1
            for share in range(choices.first[mask], choices.first[mask + 1]):
                total = bound
                for m in range(tenants):
                    total += score[m, variant[m], choices.shares[share, m]]
                if total <= least or total <= IMPOSSIBLE:
                    continue
                if number < 0:
                    if statuses == st_place.shape[0]:
                        st_place, st_end = _twice(st_place), _twice(st_end)
                    number = statuses
                    st_place[number], st_end[number] = own, until
                    statuses += 1
                value = now.value[state]
                for m in range(tenants):
                    value += serving.accuracy[m, done[m]] * thrown[m, choices.shares[share, m], 0]
                state_of[used], status_of[used], share_of[used] = state, number, share
                bound_of[used], value_of[used] = total, value
                used += 1
                if used == room:
                    order = best_first(bound_of)
                    least = max(least, bound_of[order[room // 2]])
                    missed = max(missed, least)
                    used = 0
                    for i in range(room):
                        if bound_of[i] > least:
                            state_of[used], status_of[used] = state_of[i], status_of[i]
                            share_of[used], bound_of[used] = share_of[i], bound_of[i]
                            value_of[used] = value_of[i]
                            used += 1
            work += 4 * (choices.first[mask + 1] - choices.first[mask])
    order = best_first(bound_of[:used])
    place, end, owner, age, value_kept, back, lost, more = _keep_best(
        slot, width, all_warm, now, order, state_of, status_of, share_of, bound_of, value_of,
        st_place, st_end, serving, costs, choices, arrivals,
    )  # fmt: skip
    return place, end, owner, age, value_kept, back, max(missed, lost), work + more


@compiled
def best_first(bounds: Floats) -> Ints:
    """The order of falling bounds."""
    return np.argsort(-bounds, kind="mergesort")


@compiled
def _twice(rows: Ints) -> Ints:
    more = np.empty((2 * rows.shape[0], rows.shape[1]), np.int64)
    more[: rows.shape[0]] = rows
    return more


@compiled
def _keep_best(  # noqa: PLR0912 (rounds over the ranked choices)
    slot: int,
    width: int,
    all_warm: bool,
    now: Layer,
    order: Ints,
    state_of: Ints,
    status_of: Ints,
    share_of: Ints,
    bound_of: Floats,
    value_of: Floats,
    st_place: Ints,
    st_end: Ints,
    serving: Serving,
    costs: Costs,
    choices: Choices,
    arrivals: Arrivals,
) -> tuple[Ints, Ints, Int8s, Int32s, Floats, Ints, float, int]:
    tenants, places = now.place.shape[1], now.owner.shape[1]
    room = min(width, order.shape[0])
    place, end = np.empty((room, tenants), np.int64), np.empty((room, tenants), np.int64)
    owner, age = np.empty((room, places), np.int8), np.empty((room, places), np.int32)
    value, back = np.empty(room), np.empty(room, np.int64)
    kept, lost, work = 0, NEVER, 0
    taken, quota = np.zeros(3**tenants, np.int64), 0
    used = np.zeros(order.shape[0], np.bool_)
    rank, left = 0, order.shape[0]
    while left > 0 and kept < room:
        if rank == order.shape[0]:
            rank, quota = 0, 2 * max(1, quota)
        i, chosen = order[rank], rank
        rank += 1
        status, phase = status_of[i], 0
        for m in range(tenants):
            phase = 3 * phase + max(0, -st_place[status, m])
        if used[chosen] or (kept >= width // 2 and taken[phase] >= quota):
            continue
        used[chosen] = True
        left -= 1
        before = state_of[i]
        place[kept], end[kept], value[kept] = st_place[status], st_end[status], value_of[i]
        owner[kept], age[kept] = -1, 0
        for m in range(tenants):
            for at in choices.places[choices.shares[share_of[i], m]]:
                if at < 0:
                    break
                owner[kept, at] = m
            if place[kept, m] >= 0:
                owner[kept, place[kept, m]] = m
        for at in range(places):
            m = owner[kept, at]
            if m >= 0 and all_warm:
                age[kept, at] = costs.warm_age[m]
            elif m >= 0 and now.owner[before, at] == m:
                age[kept, at] = min(costs.warm_age[m], now.age[before, at] + 1)
        dominated, looked = _is_dominated(
            slot + 1, kept, place, end, owner, age, value, serving, costs, arrivals
        )
        work += 80 * looked
        if not dominated:
            back[kept] = before
            taken[phase] += 1
            kept += 1
    for rank in range(order.shape[0]):
        if left > 0 and not used[rank]:
            lost = bound_of[order[rank]]
            break
    return (
        place[:kept].copy(), end[:kept].copy(), owner[:kept].copy(), age[:kept].copy(),
        value[:kept].copy(), back[:kept].copy(), lost, work,
    )  # fmt: skip


@compiled
def _is_dominated(
    slot: int,
    kept: int,
    place: Ints,
    end: Ints,
    owner: Int8s,
    age: Int32s,
    value: Floats,
    serving: Serving,
    costs: Costs,
    arrivals: Arrivals,
) -> tuple[bool, int]:
    """Whether a state before row `kept` is at least as good as that row; rows looked at."""
    looked = 0
    for other in range(kept):
        same = value[other] >= value[kept]
        for m in range(place.shape[1]):
            same = same and place[other, m] == place[kept, m]
            same = same and (place[kept, m] < 0 or end[other, m] == end[kept, m])
        if not same:
            continue
        looked += 1
        slack = value[other] - value[kept]
        if can_change(
            slot, slack, owner[other], age[other], owner[kept], age[kept], serving, costs, arrivals
        ):
            return True, looked
        if looked == COMPARED:
            break
    return False, looked


@compiled
def can_change(
    slot: int,
    slack: float,
    owner: Int8s,
    age: Int32s,
    wanted: Int8s,
    wanted_age: Int32s,
    serving: Serving,
    costs: Costs,
    arrivals: Arrivals,
) -> bool:
    """Whether changing to the `wanted` allocation in `slot` costs at most `slack`.

    What an instance serves more than another beside it is at most what it serves alone.
    """
    slots = serving.served.shape[1]
    for m in range(serving.lead.shape[0]):
        accuracy = max(serving.accuracy[m, 0], serving.accuracy[m, 1])
        for t in range(slot, min(slots, slot + costs.warm_age[m] + 1)):
            missing = 0.0
            for at in range(owner.shape[0]):
                if wanted[at] != m:
                    continue
                ahead = float(t - slot)
                has = age[at] + 2.0 if owner[at] == m else 1.0
                needs = wanted_age[at] + 2.0
                if wanted_age[at] >= costs.warm_age[m]:
                    needs = costs.over[m] + 1.0
                if owner[at] == m and age[at] >= costs.warm_age[m]:
                    continue
                share = min(1.0, max(0.0, needs + ahead - costs.over[m]))
                share -= min(1.0, max(0.0, has + ahead - costs.over[m]))
                if share > 0.0:
                    missing += costs.capability[m, at] * share
            if missing > 0.0:
                slack -= accuracy * expected(arrivals, m, t, missing)
                if slack < 0.0:
                    return False
    return True


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a pass brought: its best plan, if any, and what it may have missed."""

    value: float
    schedule: Schedule
    owner: Ints
    """[slot, placement]"""
    missed: float
    work: int


class StateSearch:
    """Searches plans of one problem; passes of growing width share the bounds."""

    def __init__(
        self,
        problem: Problem,
        space: Space,
        serving: Serving,
        shares: Shares,
        prices: Prices,
        menus: Menus,
        arrivals: Arrivals,
        costs: Costs,
        running: Schedule,
    ) -> None:
        self._problem, self._space, self._running = problem, space, running
        self._serving, self._shares, self._prices = serving, shares, prices
        self._arrivals, self._costs = arrivals, costs
        self._ahead = tabulate(serving, shares, prices, space.most_waiting)
        self._choices = _choices_of(problem, space, serving, menus)

    def run(
        self,
        held: States,
        incumbent: float,
        width: int,
        budget: float,
        late: Callable[[], bool],
    ) -> Outcome:
        """One pass that keeps at most `width` states a slot and spends about `budget` work.

        `held`: what is held before slot 0.
        """
        slots = self._problem.slots
        now, missed, work, walked = self._first(held), NEVER, 0, 0
        layers: list[tuple[Layer, Ints]] = []
        for slot in range(slots):
            allowed = width
            if work > budget / 2:
                # Half is spent; spread the rest over the slots left, so that the pass arrives.
                each = max(1.0, work / max(1, walked))
                allowed = int(min(width, max(NARROW, (budget - work) / (slots - slot) / each)))
            walked += len(now.value)
            place, end, owner, age, value, back, lost, spent = expand(
                slot,
                incumbent,
                NARROW if late() else allowed,
                slot == 0 and self._problem.initial is None,
                now,
                self._shares,
                self._prices.pattern,
                self._prices.beside,
                self._serving,
                self._costs,
                self._choices,
                self._arrivals,
                self._ahead,
            )
            missed, work = max(missed, lost), work + spent
            now = Layer(place, end, owner, age, value)
            if len(value) == 0:
                return Outcome(NEVER, self._running, np.empty((0, 0), np.int64), missed, work)
            layers.append((now, back))
        worth = now.value + (now.place != STILL) @ self._serving.later
        at = int(worth.argmax())
        best = float(worth[at])
        owners = np.empty((slots, now.owner.shape[1]), np.int64)
        schedule = list(self._running)
        for slot in range(slots - 1, -1, -1):
            states, back = layers[slot]
            owners[slot] = states.owner[at]
            for m, where in enumerate(states.place[at].tolist()):
                if where >= 0 and self._running[m] is None:
                    ends = int(states.end[at, m])
                    size = self._space.geometry.place_size[where]
                    begin = ends - int(self._serving.durations[m, size])
                    schedule[m] = Start(where, begin, ends)
            at = int(back[at])
        return Outcome(best, tuple(schedule), owners, missed, work)

    def allocations(self, outcome: Outcome) -> tuple[Allocation, ...]:
        """The outcome's plan, slot by slot."""
        places, tenants = self._space.geometry.places, self._problem.tenants
        slots = []
        for slot, owner in enumerate(outcome.owner.tolist()):
            retraining = {
                start.place
                for start in outcome.schedule
                if start is not None and start.begin <= slot < start.end
            }
            slots.append(
                Allocation(
                    tuple(
                        Instance(
                            places[at].start,
                            places[at].gpcs,
                            Task(
                                tenants[m].name,
                                Kind.RETRAINING if at in retraining else Kind.INFERENCE,
                            ),
                        )
                        for at, m in sorted(enumerate(owner), key=lambda e: places[e[0]].start)
                        if m >= 0
                    )
                )
            )
        return tuple(slots)

    def _first(self, held: States) -> Layer:
        """The state before slot 0."""
        place = np.full((1, len(self._running)), STILL, np.int64)
        end = np.zeros((1, len(self._running)), np.int64)
        for m, start in enumerate(self._running):
            if start is not None:
                place[0, m], end[0, m] = start.place, start.end
            elif not self._serving.durations[m].any():
                place[0, m] = DONE
        return Layer(place, end, held.owner.astype(np.int8), held.age.astype(np.int32), np.zeros(1))


def _choices_of(problem: Problem, space: Space, serving: Serving, menus: Menus) -> Choices:
    masks = 1 << problem.board.memory_slices
    reachable = {int(mask) for mask in space.reachable}
    found = [menus.menu(mask).shares if mask in reachable else None for mask in range(masks)]
    counts = [0 if each is None else len(each) for each in found]
    tenants = len(problem.tenants)
    shares = np.concatenate(
        [np.empty((0, tenants), np.int64)] + [e for e in found if e is not None]
    )
    own = [np.unique(shares[:, m]) for m in range(tenants)]
    listed = np.full((tenants, max(map(len, own)) + 1), -1, np.int64)
    for m, each in enumerate(own):
        listed[m, : len(each)] = each
    sizes = len(space.geometry.sizes)
    pattern = np.full((tenants, 8**sizes), -1, np.int64)
    weights = 8 ** np.arange(sizes)
    for m in range(tenants):
        codes = serving.counts[m, : serving.patterns[m]].astype(np.int64) @ weights
        pattern[m, codes] = np.arange(serving.patterns[m])
    return Choices(
        shares=np.ascontiguousarray(shares),
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        own=listed,
        places=menus.places,
        pattern=pattern,
        place_size=space.geometry.place_size,
        place_mask=space.geometry.place_mask,
    )
