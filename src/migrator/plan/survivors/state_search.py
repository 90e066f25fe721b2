"""Search over real allocations and retrainings together, slot by slot, pruned by the prices.

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

from migrator.core.problem import Problem
from migrator.plan.exact.expand import descending
from migrator.plan.exact.space import Floats, Ints, Schedule, Space, Start, symmetries
from migrator.plan.exact.tables import IMPOSSIBLE, NEVER
from migrator.plan.kernels import compiled, compiled_inner, entry
from migrator.plan.survivors.ahead import Ahead, tabulate
from migrator.plan.survivors.options import Arrivals, Menus, expected
from migrator.plan.survivors.prices import Prices
from migrator.plan.survivors.search import Costs, States
from migrator.plan.survivors.serving import Serving, Shares
from migrator.plan.survivors.states import (
    DONE,
    STILL,
    Candidates,
    Choices,
    Layer,
    candidates,
    next_layer,
)


class _Scratch(NamedTuple):
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


def _empty_scratch(choices: Choices, costs: Costs) -> _Scratch:
    """Room for the states of one problem."""
    (tenants, sizes), sets = choices.durations.shape, len(costs.set_places)
    places = len(choices.place_size)
    return _Scratch(
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
def _expand(
    slot: int,
    all_warm: bool,
    now: Layer,
    choices: Choices,
    costs: Costs,
    arrivals: Arrivals,
    ahead: Ahead,
    room: _Scratch,
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
    room: _Scratch,
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
    slot: int, m: int, choices: Choices, costs: Costs, arrivals: Arrivals, room: _Scratch
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
def _rent_ahead(slot: int, choices: Choices, ahead: Ahead, room: _Scratch) -> float:
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
def _score_sets(slot: int, m: int, v: int, choices: Choices, ahead: Ahead, room: _Scratch) -> float:
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
    room: _Scratch,
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


NARROW = 12
"""States a slot that even a pass without budget keeps: it must arrive with some plan."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a pass brought: its best plan, if any, and what it may have missed."""

    value: float
    schedule: Schedule
    owners: Ints
    """[slot, placement]: tenant that holds it for either task, -1 none"""
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
        self._serving, self._arrivals, self._costs = serving, arrivals, costs
        self._choices = _choices_of(problem, space, serving, menus)
        self._scratch = _empty_scratch(self._choices, costs)
        self._most_shares = int(np.diff(self._choices.first).max())
        masks = {int(mask) for mask in space.reachable if _has_shares(self._choices.first, mask)}
        self._ahead = tabulate(serving, shares, prices, space, masks)

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
        look = entry(_expand)
        for slot in range(slots):
            allowed = width
            if work > budget / 2:
                # Half is spent; spread the rest over the slots left, so that the pass arrives.
                each = max(1.0, work / max(1, walked))
                allowed = int(min(width, max(NARROW, (budget - work) / (slots - slot) / each)))
            walked += len(now.value)
            allowed = NARROW if late() else allowed
            all_warm = slot == 0 and self._problem.initial is None
            found = candidates(max(64 * allowed, 4096) + 2 * self._most_shares, incumbent)
            rest = self._choices, self._costs, self._arrivals
            work += look(slot, all_warm, now, *rest, self._ahead, self._scratch, found)
            now, back, lost, spent = next_layer(slot, allowed, all_warm, now, found, *rest)
            missed, work = max(missed, lost), work + spent
            if len(now.value) == 0:
                return Outcome(NEVER, self._running, np.empty((0, 0), np.int64), missed, work)
            layers.append((now, back))
        worth = now.value + (now.place != STILL) @ self._serving.later
        at = int(worth.argmax())
        owners, schedule = self._trace(layers, at)
        return Outcome(float(worth[at]), schedule, owners, missed, work)

    def _trace(self, layers: list[tuple[Layer, Ints]], at: int) -> tuple[Ints, Schedule]:
        """What is held in every slot, and the retrainings, on the way to the last state `at`."""
        way = [at]
        for _, back in reversed(layers):
            way.append(int(back[way[-1], 0]))
        turns = self._choices.turns
        owners = np.empty((len(layers), turns.shape[1]), np.int64)
        schedule, real = list(self._running), turns[0]
        for slot, ((states, back), row) in enumerate(zip(layers, way[-2::-1], strict=True)):
            real = real[turns[back[row, 1]]]  # where the placements of the turned state lie
            owners[slot, real] = states.owner[row]
            for m, where in enumerate(states.place[row].tolist()):
                if where >= 0 and self._running[m] is None:
                    ends = int(states.end[row, m])
                    size = self._space.geometry.place_size[where]
                    begin = ends - int(self._serving.durations[m, size])
                    schedule[m] = Start(int(real[where]), begin, ends)
        return owners, tuple(schedule)

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
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    starts, start_facts = _starts_of(space, serving.durations, first)
    return Choices(
        starts=starts,
        start_facts=start_facts,
        shares=np.ascontiguousarray(shares),
        first=first,
        own=listed,
        pattern=pattern,
        place_size=space.geometry.place_size,
        place_mask=space.geometry.place_mask,
        durations=serving.durations,
        lead=serving.lead,
        accuracy=serving.accuracy,
        turns=symmetries(problem.board),
    )


def _starts_of(space: Space, durations: Ints, first: Ints) -> tuple[Ints, Ints]:
    """`starts` and `start_facts` of the choices: retrainings that can run at the same time."""
    tenants, geo = len(durations), space.geometry
    starts, facts = [], []
    open_starts: list[tuple[tuple[int, ...], int, int, int]] = [((-1,) * tenants, 0, 0, 0)]
    while open_starts:
        start, taken, bits, longest = open_starts.pop()
        starts.append(start)
        facts.append((taken, bits, longest))
        for m in range(bits.bit_length(), tenants):
            for at, (mask, size) in enumerate(zip(geo.place_mask, geo.place_size, strict=True)):
                slots, both = int(durations[m, size]), taken | int(mask)
                if slots > 0 and not taken & mask and _has_shares(first, both):
                    more = (*start[:m], at, *start[m + 1 :])
                    open_starts.append((more, both, bits | 1 << m, max(longest, slots)))
    return np.array(starts, np.int64), np.array(facts, np.int64)


def _has_shares(first: Ints, mask: int) -> bool:
    return bool(first[mask] < first[mask + 1])
