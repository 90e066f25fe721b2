"""The kernels of `planning/survivors` in slow, plain Python, as docs/planner.md puts them.

Nothing here shares a table or an order of evaluation with `migrator.planning`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations, product
from typing import NamedTuple

from migrator.core.catalogue import (
    Board,
    Multiset,
    Placement,
    multisets,
    placement_sets,
    placements,
)
from migrator.core.problem import Problem, Tenant
from support.reference_planner import (
    NEVER,
    WAITING,
    Done,
    Runs,
    Status,
    accuracy_with,
    cost_of_changing,
    ended,
    expected,
    fits,
    joint_patterns,
    later_goodput,
    occurring_patterns,
    retraining_sizes,
    running_mask,
    share_served,
    starts,
)


@dataclass
class Prices:
    """What the tenants pay in every slot."""

    serving: dict[tuple[int, int, Multiset], float] = field(default_factory=dict)
    """(tenant, slot, serving pattern)"""
    waiting: dict[tuple[int, int], float] = field(default_factory=dict)
    """(slot, size)"""
    retraining: dict[tuple[int, int], float] = field(default_factory=dict)
    """(slot, size)"""


def serving_patterns(problem: Problem, m: int) -> list[Multiset]:
    """What of a tenant's instances can serve: all of them or fewer."""
    return sorted({part for p in occurring_patterns(problem, m) for part in parts_of(p)})


@cache
def parts_of(pattern: Multiset) -> frozenset[Multiset]:
    """The multisets that the pattern contains."""
    chosen = product((False, True), repeat=len(pattern))
    return frozenset(
        tuple(size for size, is_in in zip(pattern, flags, strict=True) if is_in) for flags in chosen
    )


def rents(problem: Problem, mask: int, most: int, prices: Prices) -> list[float]:
    """[slot]: the most that the board earns beside `mask` while at most `most` tenants retrain."""
    tenants = range(len(problem.tenants))
    sets = [(), *multisets(problem.board)]
    sizes = retraining_sizes(problem)
    shares = [
        (serving, retraining, waiting)
        for serving in product(*(serving_patterns(problem, m) for m in tenants))
        for retraining in sets
        if len(retraining) <= most and sizes >= set(retraining)
        for waiting in sets
        if fits(problem.board, (*sum(serving, ()), *retraining, *waiting), mask)
        and _has_minima(problem, serving, waiting)
    ]
    return [
        max(
            (
                sum(prices.serving[m, slot, pattern] for m, pattern in enumerate(serving))
                + sum(prices.retraining[slot, size] for size in retraining)
                + sum(prices.waiting[slot, size] for size in waiting)
                for serving, retraining, waiting in shares
            ),
            default=NEVER,
        )
        for slot in range(problem.slots)
    ]


def _has_minima(problem: Problem, serving: tuple[Multiset, ...], waiting: Multiset) -> bool:
    """Whether one instance that waits can be given to every tenant whose serving ones are small."""
    missing = [
        tenant.min_gpcs
        for tenant, pattern in zip(problem.tenants, serving, strict=True)
        if max(pattern, default=0) < tenant.min_gpcs
    ]
    return any(
        all(size >= least for size, least in zip(sizes, missing, strict=True))
        for sizes in permutations(waiting, len(missing))
    )


Running = tuple[Runs, int]
"""A running retraining and its size."""


def lead_of(problem: Problem, tenant: Tenant) -> int:
    """Whole slots for which a new instance is held before it serves."""
    return int(tenant.overhead_s / problem.slot_s)


def value_to_go(problem: Problem, m: int, prices: Prices) -> Callable[..., float]:
    """(slot, status, size it runs on, closed slots, serving before) -> the most of tenant m alone.

    It pays for what serves, for having held for the lead what begins to serve, and, when a
    retraining starts, for all of its slots at once. In closed slots nothing begins to serve.
    """
    tenant, patterns = problem.tenants[m], serving_patterns(problem, m)
    lead = lead_of(problem, tenant)
    first_new = lead + (problem.initial is None)
    share_of_new = share_served(problem, tenant, lead)

    @cache
    def best(slot: int, status: Status, size: int, closed: int, before: Multiset) -> float:
        if isinstance(status, Runs):
            closed = 0  # the kernels look no closer while a retraining runs
            if status.end == slot:  # the instance it ran on serves at once
                joined = tuple(sorted((*before, size), reverse=True))
                before = joined if joined in patterns else before
                status = ended(status, slot)
        if slot == problem.slots:
            if isinstance(status, Done):
                return later_goodput(problem, tenant, status)
            return 0.0 if tenant.retraining_optional and status == WAITING else NEVER
        started = (
            best(slot, Runs(slot + duration, choice), on, 0, before)
            - sum(prices.retraining[t, on] for t in range(slot, slot + duration))
            for choice, configuration in enumerate(tenant.configurations)
            for on, duration in configuration.slots.items()
            if status == WAITING and slot + duration <= problem.slots
        )
        return max([serve(slot, status, size, closed, before), *started])

    def serve(slot: int, status: Status, size: int, closed: int, before: Multiset) -> float:
        accuracy = accuracy_with(problem, tenant, status)
        return max(
            accuracy * expected(received(tenant, slot), capability(tenant, kept, new))
            - prices.serving[m, slot, pattern]
            - sum(prices.waiting[t, k] for k in new for t in range(max(0, slot - lead), slot))
            + best(slot + 1, status, size, max(0, closed - 1), pattern)
            for kept in parts_of(before)
            for pattern in patterns
            if kept in parts_of(pattern)
            and (kept == pattern or (closed == 0 and slot >= first_new))
            for new in [tuple((Counter(pattern) - Counter(kept)).elements())]
        )

    def capability(tenant: Tenant, kept: Multiset, new: Multiset) -> float:
        rate = tenant.capability
        return sum(rate[k] for k in kept) + share_of_new * sum(rate[k] for k in new)

    return best


def received(tenant: Tenant, slot: int) -> list[float]:
    """[scenario]: its requests in the slot."""
    return [row[slot] for row in tenant.received]


def serving_to_go(
    problem: Problem, occupied: list[int], ends: Mapping[int, Running]
) -> Callable[[int, tuple[Multiset, ...]], float]:
    """(slot, joint pattern held warm before it) -> the most goodput from there on.

    Around fixed retrainings: `occupied` [slot], `ends` of the tenants that retrain. The goodput
    that new instances miss while they are cold is counted when they are taken, as if they stayed.
    """
    joints = joint_patterns(problem)

    def accuracy(m: int, slot: int) -> float:
        return accuracy_around(problem, m, slot, ends)

    def gain(slot: int, m: int, before: Multiset, now: Multiset) -> float:
        tenant = problem.tenants[m]
        own = Counter(before)
        if m in ends and slot == ends[m][0].end:  # what it was retrained on is warm
            own[ends[m][1]] += 1
        warm = sum(tenant.capability[k] for k in (own & Counter(now)).elements())
        total = sum(tenant.capability[k] for k in now)
        worth = accuracy(m, slot) * expected(received(tenant, slot), total)
        for t in range(slot, problem.slots):
            cold = (1 - share_served(problem, tenant, t - slot)) * (total - warm)
            missed = expected(received(tenant, t), total)
            missed -= expected(received(tenant, t), total - cold)
            worth -= accuracy(m, t) * missed
        return worth

    @cache
    def best(slot: int, before: tuple[Multiset, ...]) -> float:
        if slot == problem.slots:
            return 0.0
        return max(
            (
                sum(gain(slot, m, before[m], now[m]) for m in range(len(now))) + best(slot + 1, now)
                for now in joints
                if fits(problem.board, sum(now, ()), occupied[slot])
            ),
            default=NEVER,
        )

    return best


def accuracy_around(problem: Problem, m: int, slot: int, ends: Mapping[int, Running]) -> float:
    """The accuracy of tenant m in the slot, around fixed retrainings."""
    tenant = problem.tenants[m]
    if m not in ends or slot < ends[m][0].end:
        return tenant.accuracy_pre
    return tenant.configurations[ends[m][0].choice].accuracy


class State(NamedTuple):
    """What a plan can have done up to a slot."""

    status: tuple[Status, ...]
    """of every tenant's retraining"""
    place: tuple[int, ...]
    """the placement it runs on, -1 none"""
    owner: tuple[int, ...]
    """[placement]: the tenant that holds it, -1 none"""
    age: tuple[int, ...]
    """[placement]: whole slots it has held it before, up to the age at which it is warm"""
    value: float


def warm_age(problem: Problem, tenant: Tenant) -> int:
    """The age from which an instance serves in full."""
    return next(
        age for age in range(problem.slots + 1) if share_served(problem, tenant, age) == 1.0
    )


def full_shares(problem: Problem, mask: int) -> list[tuple[int, ...]]:
    """[placement] -> tenant or -1: every way to share out all slices beside `mask`."""
    places, tenants = placements(problem.board), problem.tenants
    usable = {size for tenant in tenants for size in tenant.capability}

    def can_be_added(place: Placement, chosen: tuple[Placement, ...]) -> bool:
        taken = mask | sum(other.mask for other in chosen)
        return place.gpcs in usable and not place.mask & taken

    shares = []
    for chosen in placement_sets(problem.board):
        if any(place.mask & mask for place in chosen):
            continue
        if any(can_be_added(place, chosen) for place in places):
            continue
        for owners in product(range(len(tenants)), repeat=len(chosen)):
            held = [
                [p.gpcs for p, m in zip(chosen, owners, strict=True) if m == n]
                for n in range(len(tenants))
            ]
            if all(
                sizes and max(sizes) >= tenant.min_gpcs and set(sizes) <= set(tenant.capability)
                for sizes, tenant in zip(held, tenants, strict=True)
            ):
                of_place = dict(zip(chosen, owners, strict=True))
                shares.append(tuple(of_place.get(place, -1) for place in places))
    return shares


def ages_now(problem: Problem, state: State, owner: tuple[int, ...], *, free: bool) -> list[int]:
    """[placement]: the ages in the slot after `state` if its holders are then `owner`.

    `free`: nothing is known of before, so nothing is cold.
    """
    ages = []
    for at, m in enumerate(owner):
        warm = warm_age(problem, problem.tenants[m])
        if m >= 0 and (free or state.owner[at] == m):
            ages.append(warm if free else min(warm, state.age[at] + 1))
        else:
            ages.append(0)
    return ages


def following(
    problem: Problem, slot: int, state: State, prices: Prices, *, free: bool
) -> Iterator[tuple[float, State]]:
    """Every state that can follow, with the bound on all plans through it."""
    places, tenants = placements(problem.board), problem.tenants
    status = tuple(ended(s, slot) for s in state.status)
    before = tuple(state.place[m] if isinstance(s, Runs) else -1 for m, s in enumerate(status))
    for places_now, status_now in starts(problem, slot, status, before):
        mask = sum(places[at].mask for at in places_now if at >= 0)
        ahead = rent_ahead(problem, slot + 1, status_now, places_now, prices)
        for share in full_shares(problem, mask):
            owner = list(share)
            for m, at in enumerate(places_now):
                if at >= 0:
                    owner[at] = m
            ages = ages_now(problem, state, tuple(owner), free=free)
            value, bound = state.value, state.value + ahead
            for m, tenant in enumerate(tenants):
                held = [(places[at].gpcs, ages[at]) for at, n in enumerate(share) if n == m]
                earned = accuracy_with(problem, tenant, status[m]) * expected(
                    received(tenant, slot),
                    sum(
                        tenant.capability[k] * share_served(problem, tenant, age) for k, age in held
                    ),
                )
                value += earned
                bound += earned + _still_to_come(
                    problem, m, slot, held, status_now[m], places_now[m], prices
                )
            after = State(status_now, places_now, tuple(owner), tuple(ages), value)
            yield bound, after


def rent_ahead(
    problem: Problem, slot: int, status: tuple[Status, ...], place: tuple[int, ...], prices: Prices
) -> float:
    """What the slices that running retrainings leave free can be rented for from `slot` on."""
    waiting = status.count(WAITING)
    return sum(
        rents(problem, running_mask(problem, status, place, t), waiting, prices)[t]
        for t in range(slot, problem.slots)
    )


def _still_to_come(
    problem: Problem,
    m: int,
    slot: int,
    held: list[tuple[int, int]],
    status: Status,
    place: int,
    prices: Prices,
) -> float:
    """What a tenant that holds (size, age) in the slot can still earn alone after it.

    An instance that waits is credited what it has paid so far, as it pays for all of its waiting
    when it begins to serve.
    """
    lead = lead_of(problem, problem.tenants[m])
    serving = tuple(sorted((k for k, age in held if age >= lead), reverse=True))
    closed = min(lead if age >= lead else lead - age - 1 for _, age in held)
    paid = sum(
        prices.waiting[t, k]
        for k, age in held
        if age < lead
        for t in range(max(0, slot - age), slot + 1)
    )
    size = placements(problem.board)[place].gpcs if place >= 0 else 0
    to_go = value_to_go(problem, m, prices)
    return paid + to_go(slot + 1, status, size, closed, serving)


def go_on(
    problem: Problem, slot: int, width: int, ranked: list[State]
) -> tuple[list[State], int | None]:
    """The states that go on after the slot, and which of the ranked ones is the first not tried.

    Half of them are the best ones. Then every combination of statuses has a quota, which doubles
    with every round. A state is left out if one that is kept is at least as good.
    """
    kept: list[State] = []
    looked: set[int] = set()
    quota = 0
    while len(kept) < width and len(looked) < len(ranked):
        for i, state in enumerate(ranked):
            phase = _phase(state)
            taken = sum(_phase(other) == phase for other in kept)
            if i in looked or (len(kept) >= width // 2 and taken >= quota):
                continue
            if len(kept) == width:
                break
            looked.add(i)
            chosen = rearranged(problem.board, state)
            if not any(is_as_good(problem, slot + 1, other, chosen) for other in kept):
                kept.append(chosen)
        quota = 2 * max(1, quota)
    return kept, min(set(range(len(ranked))) - looked, default=None)


def _phase(state: State) -> tuple[str, ...]:
    return tuple(type(s).__name__ for s in state.status)


def is_as_good(problem: Problem, slot: int, other: State, state: State) -> bool:
    """Whether `other` has no less after paying for the change to what `state` holds."""
    if (other.status, other.place) != (state.status, state.place) or other.value < state.value:
        return False
    ages = [{at: (m, _age(problem, s, at)) for at, m in enumerate(s.owner) if m >= 0}
            for s in (other, state)]  # fmt: skip
    return cost_of_changing(problem, slot, *ages) <= other.value - state.value


def _age(problem: Problem, state: State, at: int) -> int:
    """An instance that is warm counts as old: how old makes no difference."""
    is_warm = state.age[at] >= warm_age(problem, problem.tenants[state.owner[at]])
    return 99 if is_warm else state.age[at]


@cache
def rearrangements(board: Board) -> list[tuple[int, ...]]:
    """Every order of the placements that comes from an order of the slices."""
    places = placements(board)
    at = {(place.mask, place.gpcs): i for i, place in enumerate(places)}
    orders = []
    for slices in permutations(range(board.memory_slices)):
        moved = [
            (sum(1 << to for bit, to in enumerate(slices) if place.mask >> bit & 1), place.gpcs)
            for place in places
        ]
        if all(spot in at for spot in moved):
            orders.append(tuple(at[spot] for spot in moved))
    return sorted(set(orders))


def rearranged(board: Board, state: State) -> State:
    """The same for all states that a rearrangement of the slices turns into each other."""

    def codes(order: tuple[int, ...]) -> list[tuple[int, bool, int]]:
        return [(state.owner[at], at in state.place, state.age[at]) for at in order]

    order = max(rearrangements(board), key=codes)
    return state._replace(
        place=tuple(order.index(at) if at >= 0 else -1 for at in state.place),
        owner=tuple(state.owner[at] for at in order),
        age=tuple(state.age[at] for at in order),
    )


def beam_step(
    problem: Problem,
    slot: int,
    width: int,
    states: list[State],
    shares: list[tuple[int, ...]],
    schedule: Mapping[int, tuple[int, int, Runs]],
    *,
    free: bool,
) -> list[State]:
    """The states that a beam of that width keeps after the slot, the best rank first.

    `schedule`: (placement, begin, retraining) of the tenants that retrain. Of the states that hold
    the same, two go on.
    """
    places = placements(problem.board)
    occupied = [
        sum(places[at].mask for at, begin, runs in schedule.values() if begin <= t < runs.end)
        for t in range(problem.slots)
    ]
    ends = {m: (runs, places[at].gpcs) for m, (at, _, runs) in schedule.items()}
    to_go = serving_to_go(problem, occupied, ends)
    running = {at: m for m, (at, begin, runs) in schedule.items() if begin <= slot < runs.end}
    choices = []
    for state in states:
        for share in shares:
            owner = tuple(running.get(at, m) for at, m in enumerate(share))
            ages = ages_now(problem, state, owner, free=free)
            joint, rank, value = [], 0.0, state.value
            for m, tenant in enumerate(problem.tenants):
                held = [(places[at].gpcs, at) for at, n in enumerate(share) if n == m]
                joint.append(tuple(sorted((size for size, _ in held), reverse=True)))
                steady = sum(tenant.capability[k] for k, at in held if state.owner[at] == m)
                rank += 1e-6 * steady
                for t in range(slot, problem.slots):
                    accuracy = accuracy_around(problem, m, t, ends)
                    now = sum(
                        tenant.capability[k] * share_served(problem, tenant, ages[at] + t - slot)
                        for k, at in held
                    )
                    full = sum(tenant.capability[k] for k, _ in held)
                    earned = accuracy * expected(received(tenant, t), now)
                    if t == slot:
                        value += earned
                        rank += earned
                    else:  # what is not served then, as the instances are not warm yet
                        rank += earned - accuracy * expected(received(tenant, t), full)
            rank += state.value + to_go(slot + 1, tuple(joint))
            choices.append((rank, State((), (), owner, tuple(ages), value)))
    # the sort is stable; ranks that differ by rounding only are equal
    choices.sort(key=lambda choice: -round(choice[0], 9))
    kept: list[State] = []
    for _, state in choices:
        alike = [other for other in kept if other.owner == state.owner]
        is_known = any(other.age == state.age for other in alike)
        if len(kept) < width and len(alike) < 2 and not is_known:
            kept.append(state)
    return kept
