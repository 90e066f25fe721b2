"""The kernels of `survivors` against slow, plain Python (tests/support/reference_survivors.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pytest
from support import reference_planner
from support import reference_survivors as reference
from support.problems import random_problem, with_better_ones
from support.reference_survivors import State

from migrator.core.catalogue import placements
from migrator.core.problem import Charge, Problem
from migrator.planning.arrays import Floats
from migrator.planning.exact.schedule import Schedule, Start
from migrator.planning.exact.space import Space, build_space
from migrator.planning.exact.tables import NEVER, build_tables
from migrator.planning.survivors import prices as price_steps
from migrator.planning.survivors.arrivals import Arrivals, arrivals_of
from migrator.planning.survivors.beam_search import ShareSearch, States
from migrator.planning.survivors.board import (
    RETRAINING,
    WAITING,
    Shares,
    build_shares,
    empty_best_shares,
    extras_beside,
)
from migrator.planning.survivors.expansion import expand_states
from migrator.planning.survivors.fixed_schedule import around_of
from migrator.planning.survivors.menus import Menus, menus_of
from migrator.planning.survivors.prices import ServingPrices
from migrator.planning.survivors.selection import next_layer
from migrator.planning.survivors.serving import ServingTables, build_serving, serving_patterns
from migrator.planning.survivors.state_search import StateSearch
from migrator.planning.survivors.states import DONE, STILL, Candidates, Layer, empty_candidates
from migrator.planning.survivors.values_to_go import Ahead

SEEDS = range(6)
SLOTS = 4


@dataclass(frozen=True, eq=False)
class Window:
    """A small problem with all that the kernels need, and the reference's form of its prices."""

    problem: Problem
    seed: int

    @cached_property
    def space(self) -> Space:
        return build_space(self.problem)

    @cached_property
    def serving(self) -> ServingTables:
        return build_serving(self.problem, self.space, build_tables(self.problem, self.space))

    @cached_property
    def shares(self) -> Shares:
        return build_shares(self.problem, self.space)

    @cached_property
    def menus(self) -> Menus:
        return menus_of(self.problem, self.space)

    @cached_property
    def arrivals(self) -> Arrivals:
        return arrivals_of(self.problem)

    @cached_property
    def beam(self) -> ShareSearch:
        return ShareSearch(self.problem, self.space, self.menus, self.arrivals)

    @cached_property
    def prices(self) -> ServingPrices:
        """Random ones; multiples of 1/8 add up exactly."""
        rng, (tenants, width) = np.random.default_rng(self.seed), self.serving.counts.shape[:2]
        pattern = rng.integers(0, 40, (tenants, SLOTS, width)) / 8.0
        beside = rng.integers(0, 16, (2, SLOTS, len(self.problem.board.sizes))) / 8.0
        return ServingPrices(pattern, beside, np.inf)

    @cached_property
    def reference_prices(self) -> reference.Prices:
        """The same for the reference."""
        sizes, prices = self.problem.board.sizes, self.prices
        cells = [(t, k) for t in range(SLOTS) for k in range(len(sizes))]
        return reference.Prices(
            {
                (m, t, pattern): float(prices.pattern[m, t, p])
                for m in range(len(self.problem.tenants))
                for p, pattern in enumerate(serving_patterns(self.space, m))
                for t in range(SLOTS)
            },
            {(t, sizes[k]): float(prices.beside[WAITING, t, k]) for t, k in cells},
            {(t, sizes[k]): float(prices.beside[RETRAINING, t, k]) for t, k in cells},
        )

    @cached_property
    def search(self) -> StateSearch:
        return StateSearch(
            self.problem,
            self.space,
            self.serving,
            self.shares,
            self.prices,
            self.menus,
            self.arrivals,
            self.beam.costs,
            (None,) * len(self.problem.tenants),
        )

    @property
    def ahead(self) -> Ahead:
        return self.search._ahead

    def owners(self, mask: int) -> list[tuple[int, ...]]:
        """[share][placement]: the shares of the menu beside the mask."""
        menu, places = self.menus.menu(mask), len(placements(self.problem.board))
        owners = np.full((len(menu.shares), places), -1)
        for share, sets in enumerate(menu.shares):
            for m, number in enumerate(sets):
                held = self.menus.places[number]
                owners[share, held[held >= 0]] = m
        return [tuple(row) for row in owners.tolist()]


@cache
def window(seed: int) -> Window:
    """Two tenants; numbers whose sums are exact, so that equal is equal.

    Half of the windows have two configurations.
    """
    problem = random_problem(
        seed,
        tenants=2,
        slots=SLOTS,
        charge=Charge.SURVIVORS,
        scenarios=1 + seed % 2,
        optional=seed % 3 == 0,
    )
    tenants = tuple(
        replace(
            tenant,
            overhead_s=min(round(4 * tenant.overhead_s) / 4, SLOTS * problem.slot_s),
            accuracy_pre=round(16 * tenant.accuracy_pre) / 16,
            configurations=tuple(
                replace(choice, accuracy=round(16 * choice.accuracy) / 16)
                for choice in tenant.configurations
            ),
        )
        for tenant in problem.tenants
    )
    problem = replace(problem, tenants=tenants)
    return Window(with_better_ones(problem) if seed % 2 else problem, seed)


def evaluate(it: Window, pattern: Floats, beside: Floats) -> tuple[float, Floats, Floats]:
    """The bound at these prices, and its slopes."""
    extras = extras_beside(it.shares, 0, it.space.most_waiting)
    surplus, surplus_beside = np.empty_like(pattern), np.empty_like(beside)
    width = pattern.shape[2]
    bound = price_steps._evaluate(
        it.serving,
        it.shares,
        [(0, SLOTS, extras)],
        empty_best_shares(it.shares, SLOTS),
        price_steps._empty_ways(it.serving.accuracy.shape[1] - 1, SLOTS, width),
        pattern,
        beside,
        surplus,
        surplus_beside,
    )
    return bound, surplus, surplus_beside


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_at_any_prices(seed: int) -> None:
    it = window(seed)
    problem, prices = it.problem, it.reference_prices
    bound, _, _ = evaluate(it, it.prices.pattern, it.prices.beside)
    expected = sum(reference.rents(problem, 0, it.space.most_waiting, prices))
    for m, tenant in enumerate(problem.tenants):
        to_go = reference.value_to_go(problem, m, prices)
        status = reference_planner.first_status(problem, tenant)
        patterns = reference.serving_patterns(problem, m)
        expected += max(to_go(0, status, 0, 0, pattern) for pattern in patterns)
    assert bound == pytest.approx(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_surplus_is_a_slope_of_the_bound(seed: int) -> None:
    """The bound is convex in the prices: a step's slopes never lie above it."""
    it, rng = window(seed), np.random.default_rng(seed)
    bound, *slopes = evaluate(it, it.prices.pattern, it.prices.beside)
    for length in (0.125, 1.0, 8.0):
        moves = [rng.normal(0.0, length, slope.shape) for slope in slopes]
        there, _, _ = evaluate(
            it, it.prices.pattern + moves[0], np.maximum(0.0, it.prices.beside + moves[1])
        )
        moves[1] = np.maximum(moves[1], -it.prices.beside)
        along = sum(float((slope * move).sum()) for slope, move in zip(slopes, moves, strict=True))
        assert there >= bound + along - 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_free_slices_can_be_rented_for(seed: int) -> None:
    it, compared = window(seed), 0
    for mask in map(int, it.space.reachable):
        if len(it.menus.menu(mask).shares) == 0:
            continue
        for waiting, rent in enumerate(it.ahead.rent[:, mask]):
            expected = reference.rents(it.problem, mask, waiting, it.reference_prices)
            assert np.diff(rent) == pytest.approx(expected)
            compared += 1
    assert compared


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_tenant_can_still_earn(seed: int) -> None:
    it = window(seed)
    ahead, sizes = it.ahead, it.problem.board.sizes
    for m, tenant in enumerate(it.problem.tenants):
        to_go = reference.value_to_go(it.problem, m, it.reference_prices)
        retrains = it.serving.durations[m].any()
        for p, pattern in enumerate(serving_patterns(it.space, m)):
            for t in range(SLOTS + 1):
                for closed in range(reference.lead_of(it.problem, tenant) + 1):
                    ends = len(tenant.configurations) if retrains else 1
                    after = [reference_planner.Done(c) for c in range(ends)]
                    for stage, status in enumerate((reference_planner.WAITING, *after)):
                        value = ahead.values[stage, m, t, min(closed, it.serving.lead[m]), p]
                        expected = to_go(t, status, 0, closed, pattern)
                        if expected == reference_planner.NEVER:
                            assert value < NEVER / 2
                        elif retrains or status in after:
                            # starts are taken from `running`, which is rounded up
                            assert value == pytest.approx(expected, rel=1e-6, abs=1e-4)
                            assert value >= expected - 1e-9
                for option in np.flatnonzero(it.serving.durations[m]):
                    (first, stride), (c, k) = ahead.row[m, option], divmod(option, len(sizes))
                    for end in range(max(1, t), min(SLOTS, t + stride - 1) + 1):
                        running = ahead.running[first + end * stride + end - t, p]
                        runs = reference_planner.Runs(end, int(c))
                        expected = to_go(t, runs, sizes[k], 0, pattern)
                        assert running == pytest.approx(expected, rel=1e-6, abs=1e-4)
                        assert running >= expected, "rounded up"


def random_schedule(it: Window, rng: np.random.Generator) -> Schedule:
    """At most one of the tenants retrains, until some slot of the window or beyond it."""
    schedule: list[Start | None] = [None] * len(it.problem.tenants)
    m = int(rng.integers(len(schedule)))
    for at, place in enumerate(placements(it.problem.board)):
        if place.gpcs == 1 and rng.random() < 0.5:
            begin = int(rng.integers(0, SLOTS))
            c = int(rng.integers(len(it.problem.tenants[m].configurations)))
            schedule[m] = Start(at, begin, int(rng.integers(begin + 1, SLOTS + 2)), c)
    return tuple(schedule)


def _runs(start: Start) -> reference_planner.Runs:
    return reference_planner.Runs(start.end, start.configuration)


@pytest.mark.parametrize("seed", range(12))
def test_what_serving_around_a_schedule_is_worth(seed: int) -> None:
    it = window(seed)
    schedule = random_schedule(it, np.random.default_rng(seed))
    around = around_of(it.problem, it.space, it.arrivals, schedule)
    places = placements(it.problem.board)
    ends = {
        m: (_runs(start), places[start.place].gpcs) for m, start in enumerate(schedule) if start
    }
    to_go = reference.serving_to_go(it.problem, around.masks.tolist(), ends)
    for t in range(SLOTS + 1):
        for j, joint in enumerate(it.space.joint):
            held = tuple(own[p] for own, p in zip(it.space.patterns, joint, strict=True))
            expected = to_go(t, held)
            if expected == reference_planner.NEVER:
                assert around.ahead[t, j] < NEVER / 2
            else:
                assert around.ahead[t, j] == pytest.approx(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_menu_has_every_way_to_share_the_free_slices_out(seed: int) -> None:
    it = window(seed)
    for mask in range(1 << it.problem.board.memory_slices):
        shares = it.owners(mask)
        assert sorted(shares) == sorted(reference.full_shares(it.problem, mask))


@pytest.mark.parametrize("seed", range(12))
def test_the_beam_keeps_the_states_of_the_best_rank(seed: int) -> None:
    it, width = window(seed), 5
    schedule = random_schedule(it, np.random.default_rng(seed))
    around = around_of(it.problem, it.space, it.arrivals, schedule)
    fixed = {m: (s.place, s.begin, _runs(s)) for m, s in enumerate(schedule) if s is not None}
    states = it.beam.before()
    for slot, mask in enumerate(around.masks.tolist()):
        menu, rows = it.menus.menu(mask), _rows_of(states)
        if len(menu.shares) == 0:
            break
        expected = reference.beam_step(
            it.problem, slot, width, rows, it.owners(mask), fixed, free=slot == 0
        )
        running = it.beam._running(schedule, slot)
        states, _ = it.beam._step(slot, width, states, menu, running, around)
        assert _rows_of(states) == expected


def _rows_of(states: States) -> list[State]:
    columns = zip(states.owner.tolist(), states.age.tolist(), states.value.tolist(), strict=True)
    return [State((), (), tuple(owner), tuple(age), value) for owner, age, value in columns]


def random_states(it: Window, rows: int, slot: int) -> list[State]:
    """States before the slot, in which tenants may retrain or have just done so."""
    rng, problem = np.random.default_rng(it.seed), it.problem
    places, tenants = placements(problem.board), len(problem.tenants)
    warm = it.beam.costs.warm_age.tolist()
    states: list[State] = []
    while len(states) < rows:
        status: list[reference_planner.Status] = []
        place = [-1] * tenants
        for m, tenant in enumerate(problem.tenants):
            status.append(reference_planner.first_status(problem, tenant))
            on = int(rng.integers(len(places)))
            for c, choice in enumerate(tenant.configurations):
                duration = choice.slots.get(places[on].gpcs, 0)
                if status[m] == reference_planner.WAITING and duration:
                    end = min(SLOTS, slot + int(rng.integers(duration)))
                    status[m], place[m] = reference_planner.Runs(end, c), on
        taken = [places[on] for on in place if on >= 0]
        if any(a.mask & b.mask for i, a in enumerate(taken) for b in taken[:i]):
            continue
        mask = sum(spot.mask for spot in taken)
        owner = [-1 if spot.mask & mask else int(rng.integers(-1, tenants)) for spot in places]
        for m, on in enumerate(place):
            if on >= 0:
                owner[on] = m
        age = [int(rng.integers(0, warm[m] + 1)) if m >= 0 else 0 for m in owner]
        value = float(rng.integers(0, 30))
        states.append(State(tuple(status), tuple(place), tuple(owner), tuple(age), value))
    return states


def layer_of(states: list[State]) -> Layer:
    """The same as the kernels take it."""

    def way_of(status: reference_planner.Status, on: int, places: int) -> int:
        if isinstance(status, reference_planner.Runs):
            return status.choice * places + on
        return DONE - status.choice if isinstance(status, reference_planner.Done) else STILL

    def end_of(status: reference_planner.Status) -> int:
        return status.end if isinstance(status, reference_planner.Runs) else 0

    return Layer(
        np.array(
            [
                [
                    way_of(s, on, len(state.owner))
                    for s, on in zip(state.status, state.place, strict=True)
                ]
                for state in states
            ]
        ),
        np.array([[end_of(s) for s in state.status] for state in states]),
        np.array([state.owner for state in states], np.int8),
        np.array([state.age for state in states], np.int32),
        np.array([state.value for state in states]),
    )


def states_of(layer: Layer) -> list[State]:
    """The same as the reference has it."""
    status_of = reference_planner.status_of
    return [
        State(
            tuple(status_of(way, until, len(owner)) for way, until in zip(ways, end, strict=True)),
            tuple(way % len(owner) if way >= 0 else -1 for way in ways),
            tuple(owner),
            tuple(age),
            value,
        )
        for ways, end, owner, age, value in zip(*(column.tolist() for column in layer), strict=True)
    ]


Choice = tuple[int, tuple[int, ...], tuple[int, ...]]
"""(state before, way in which each tenant retrains, tenant that holds each placement)"""


def expand(
    it: Window, slot: int, layer: Layer, incumbent: float, room: int = 4096
) -> tuple[Candidates, list[Choice]]:
    """The candidates that the kernel finds, and what they are."""
    search, candidates = it.search, empty_candidates(room, incumbent)
    choices = search._choices
    rest = choices, it.beam.costs, it.arrivals, it.ahead, search._scratch, candidates
    expand_states(slot, slot == 0, layer, *rest)
    listed = []
    for n in range(candidates.used[0]):
        state, tenants, places = (
            int(candidates.state[n]),
            *layer.way.shape[1:],
            layer.owner.shape[1],
        )
        base = choices.accuracy.shape[1] - 1
        start, combination = divmod(int(candidates.start[n]), base**tenants)
        ways = np.maximum(layer.way[state], -1)
        ways[layer.end[state] == slot] = -1
        owner = np.full(places, -1)
        for m, number in enumerate(choices.shares[candidates.share[n]]):
            held = it.menus.places[number]
            owner[held[held >= 0]] = m
            if choices.starts[start, m] >= 0:
                ways[m] = combination // base**m % base * places + choices.starts[start, m]
            if ways[m] >= 0:
                owner[ways[m] % places] = m
        listed.append((state, tuple(ways.tolist()), tuple(owner.tolist())))
    return candidates, listed


@cache
def expected_choices(seed: int, slot: int) -> dict[Choice, tuple[float, State]]:
    """By the reference: each with its bound and the state after it."""
    it = window(seed)
    return {
        (i, _ways(after), after.owner): (bound, after)
        for i, state in enumerate(random_states(it, 3, slot))
        for bound, after in reference.following(
            it.problem, slot, state, it.reference_prices, free=slot == 0
        )
        if bound > reference_planner.NEVER
    }


def _ways(state: State) -> tuple[int, ...]:
    return tuple(
        s.choice * len(state.owner) + at if isinstance(s, reference_planner.Runs) else -1
        for s, at in zip(state.status, state.place, strict=True)
    )


AFTER = [(seed, slot) for seed in SEEDS for slot in (0, 1, SLOTS - 1)]


@pytest.mark.parametrize(("seed", "slot"), AFTER)
def test_every_choice_that_may_beat_the_best_plan_is_found_with_its_bound(
    seed: int, slot: int
) -> None:
    it, expected = window(seed), expected_choices(seed, slot)
    bounds = sorted({round(bound, 3) for bound, _ in expected.values()})
    layer, middle = layer_of(random_states(it, 3, slot)), len(bounds) // 2
    for incumbent in (NEVER, bounds[middle] + 1e-3):
        candidates, choices = expand(it, slot, layer, incumbent)
        found = dict(
            zip(choices, zip(candidates.bound, candidates.value, strict=False), strict=False)
        )
        assert len(found) == len(choices)
        assert found.keys() == {c for c, (bound, _) in expected.items() if bound > incumbent}
        for choice, (bound, value) in found.items():
            assert value == pytest.approx(expected[choice][1].value)
            assert bound == pytest.approx(expected[choice][0], rel=1e-6, abs=1e-4)
            assert bound >= expected[choice][0] - 1e-9


@pytest.mark.parametrize(("seed", "slot"), AFTER)
def test_where_there_is_no_room_the_best_choices_stay(seed: int, slot: int) -> None:
    it = window(seed)
    layer = layer_of(random_states(it, 3, slot))
    every, _ = expand(it, slot, layer, NEVER)
    count = int(every.used[0])
    most = int(np.diff(it.search._choices.share_begin).max())
    fewer, _ = expand(it, slot, layer, NEVER, room=max(2 * most + 2, count // 3))
    kept, lost = np.sort(fewer.bound[: fewer.used[0]]), float(fewer.limits[1])
    best = np.sort(every.bound[:count])
    assert (kept > lost).all() or lost == NEVER
    assert kept.tolist() == best[best > lost].tolist()


@pytest.mark.parametrize("width", [4, 9, 400])
@pytest.mark.parametrize(("seed", "slot"), AFTER)
def test_the_states_that_go_on(seed: int, slot: int, width: int) -> None:
    it = window(seed)
    layer = layer_of(random_states(it, 3, slot))
    candidates, choices = expand(it, slot, layer, NEVER)
    order = np.argsort(-candidates.bound[: len(choices)], kind="stable")
    ranked = [expected_choices(seed, slot)[choices[n]][1] for n in order]
    rest = it.search._choices, it.beam.costs, it.arrivals
    then, _, lost, _ = next_layer(slot, width, slot == 0, layer, candidates, *rest)
    expected, first_lost = reference.go_on(it.problem, slot, width, ranked)
    assert states_of(then) == expected
    assert lost == (NEVER if first_lost is None else candidates.bound[order[first_lost]])
