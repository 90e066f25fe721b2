"""Kernels against the same things in slow, plain Python (tests/support/reference_planner.py)."""

from functools import cache

import numpy as np
import pytest
from support import reference_planner as reference
from support.problems import random_problem

from migrator.core.catalogue import placements
from migrator.core.problem import Charge, Problem
from migrator.planning.arrays import Floats
from migrator.planning.exact.best_path import best_path
from migrator.planning.exact.bounds import tabulate_bounds
from migrator.planning.exact.geometry import symmetries
from migrator.planning.exact.prices import Prices, bound_at
from migrator.planning.exact.schedule import Start, occupied_by
from migrator.planning.exact.space import Space, build_space
from migrator.planning.exact.tables import NEVER, Tables, build_tables
from migrator.planning.ranking import descending
from migrator.planning.survivors import selection
from migrator.planning.survivors.arrivals import arrivals_of, expected
from migrator.planning.survivors.beam_search import ShareSearch
from migrator.planning.survivors.board import build_shares
from migrator.planning.survivors.menus import menus_of
from migrator.planning.survivors.prices import find_prices
from migrator.planning.survivors.serving import build_serving
from migrator.planning.survivors.state_search import StateSearch
from migrator.planning.survivors.states import Layer

SEEDS = range(6)


@cache
def window(seed: int, charge: Charge = Charge.PAPER) -> Problem:
    """Two tenants and five slots; some retrainings are optional, some forecasts have scenarios."""
    return random_problem(
        seed, tenants=2, slots=5, charge=charge, scenarios=1 + seed % 2, optional=seed % 3 == 0
    )


@cache
def tabulated(seed: int) -> tuple[Space, Tables]:
    space = build_space(window(seed))
    return space, build_tables(window(seed), space)


@cache
def random_prices(seed: int) -> tuple[Floats, reference.Prices]:
    """The same prices for the kernels and for the reference; multiples of 1/8 add up exactly."""
    space, tables = tabulated(seed)
    tenants, _, slots, width = tables.keep.shape
    sizes = space.geometry.sizes
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 40, (tenants * width + len(sizes), slots)) / 8.0
    pattern = {
        (m, t, own): float(rows[m * width + p, t])
        for m, patterns in enumerate(space.patterns)
        for p, own in enumerate(patterns)
        for t in range(slots)
    }
    retraining = {
        (t, size): float(rows[tenants * width + k, t])
        for k, size in enumerate(sizes)
        for t in range(slots)
    }
    return rows, reference.Prices(pattern, retraining)


@pytest.mark.parametrize("seed", SEEDS)
def test_patterns_that_fit_together(seed: int) -> None:
    space, _ = tabulated(seed)
    names = {
        tuple(own[p] for own, p in zip(space.patterns, joint, strict=True)) for joint in space.joint
    }
    assert names == set(reference.joint_patterns(window(seed)))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_at_any_prices(seed: int) -> None:
    space, tables = tabulated(seed)
    rows, prices = random_prices(seed)
    found = bound_at(space, tables, np.zeros(window(seed).slots, np.int64), rows)
    assert found == pytest.approx(reference.bound(window(seed), prices))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_tenant_can_still_earn(seed: int) -> None:
    problem, (space, tables) = window(seed), tabulated(seed)
    rows, prices = random_prices(seed)
    bounds = tabulate_bounds(space, tables, Prices(rows, 0.0))
    compared = 0
    for m, tenant in enumerate(problem.tenants):
        to_go = reference.value_to_go(problem, m, prices)
        retrains = problem.may_retrain(tenant)
        for p, pattern in enumerate(space.patterns[m]):
            for t in range(problem.slots + 1):
                assert bounds.done[m, t, p] == pytest.approx(to_go(t, reference.DONE, pattern))
                if not retrains:
                    continue
                waiting = to_go(t, reference.WAITING, pattern)
                if waiting == reference.NEVER:
                    assert bounds.waiting[m, t, p] < NEVER / 2
                else:
                    # starts are taken from `running`, which is rounded up
                    assert bounds.waiting[m, t, p] == pytest.approx(waiting, rel=1e-6, abs=1e-4)
                    assert bounds.waiting[m, t, p] >= waiting - 1e-9
                for end in range(t, min(problem.slots, t + int(tables.durations[m].max())) + 1):
                    running = bounds.running[m, end, end - t, p]
                    assert running == pytest.approx(to_go(t, end, pattern), rel=1e-6, abs=1e-4)
                    assert running >= to_go(t, end, pattern), "rounded up"
                    compared += 1
    assert compared > 0 or not any(map(problem.may_retrain, problem.tenants))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_free_slices_can_be_rented_for(seed: int) -> None:
    problem, (space, tables) = window(seed), tabulated(seed)
    rows, prices = random_prices(seed)
    bounds = tabulate_bounds(space, tables, Prices(rows, 0.0))
    for mask in map(int, space.reachable):
        if space.arrays.fitting[mask, 0] < 0:
            continue
        for waiting in range(len(bounds.rent)):
            sums = np.diff(bounds.rent[waiting, mask])
            for t in range(problem.slots):
                assert sums[t] == pytest.approx(reference.rent(problem, t, mask, waiting, prices))


@pytest.mark.parametrize("seed", range(12))
def test_the_best_inference_around_a_schedule(seed: int) -> None:
    problem, (space, tables) = window(seed), tabulated(seed)
    rng, slots = np.random.default_rng(seed), window(seed).slots
    schedule: list[Start | None] = [None, None]
    for m, tenant in enumerate(problem.tenants):
        for at, place in enumerate(placements(problem.board)):
            duration = (tenant.retraining_slots or {}).get(place.gpcs, slots + 1)
            if problem.may_retrain(tenant) and duration <= slots and rng.random() < 0.5:
                schedule[m] = Start(at, slots - duration, slots)
    if None not in schedule:
        schedule[1] = None
    occupied = occupied_by(space, tuple(schedule), slots)
    ends = [slots if start is None else start.end for start in schedule]
    value, path = best_path(space, tables, tuple(schedule))
    expected_value, _ = reference.best_inference(problem, [int(mask) for mask in occupied], ends)
    if expected_value == reference.NEVER:
        assert value < NEVER / 2
        return
    later = sum(float(tables.later[m]) for m, start in enumerate(schedule) if start is not None)
    assert value - later == pytest.approx(expected_value)
    assert all(space.geometry.placeable[occupied[t], space.priced.total[path[t]]] for t in range(5))


@pytest.mark.parametrize("seed", SEEDS)
def test_expected_throughput(seed: int) -> None:
    problem = window(seed)
    arrivals = arrivals_of(problem)
    for m, tenant in enumerate(problem.tenants):
        for t in range(problem.slots):
            for capability in (0.0, 1.0, 2.5, 7.0, 1e9):
                received = [row[t] for row in tenant.received]
                found = expected(arrivals, m, t, capability)
                assert found == pytest.approx(reference.expected(received, capability))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 32, 33])
def test_descending_is_a_stable_sort(count: int) -> None:
    rank = np.random.default_rng(count).integers(0, 6, count).astype(np.float64)
    order = np.empty((2, count), np.int64)
    row = descending(count, rank, order)
    assert order[row].tolist() == sorted(range(count), key=lambda i: -rank[i])


def state_search(problem: Problem) -> tuple[StateSearch, ShareSearch]:
    space = build_space(problem)
    tables, slots = build_tables(problem, space), problem.slots
    menus, arrivals = menus_of(problem, space), arrivals_of(problem)
    serving, shares = build_serving(problem, space, tables), build_shares(problem, space)
    beam = ShareSearch(problem, space, menus, arrivals)
    first = np.zeros((slots, len(space.geometry.sizes)))
    occupied = np.zeros(slots, np.int64)
    prices = find_prices(serving, shares, first, occupied, space.most_waiting, 1, NEVER)
    running = (None,) * len(problem.tenants)
    search = StateSearch(
        problem, space, serving, shares, prices, menus, arrivals, beam.costs, running
    )
    return search, beam


def random_layer(problem: Problem, beam: ShareSearch, rows: int, seed: int) -> Layer:
    """States without retrainings: placements held at random, and for how long."""
    rng, places = np.random.default_rng(seed), len(placements(problem.board))
    owner = rng.integers(-1, len(problem.tenants), (rows, places)).astype(np.int8)
    warm = np.where(owner >= 0, beam.costs.warm_age[owner], 0)
    age = np.minimum(rng.integers(0, 4, (rows, places)), warm).astype(np.int32)
    status = np.full((rows, len(problem.tenants)), -1, np.int64)
    return Layer(status, np.zeros_like(status), owner, age, rng.integers(0, 30, rows) / 1.0)


def held_in(layer: Layer, row: int, warm_age: list[int]) -> reference.Held:
    """An instance that is warm counts as old: how old makes no difference."""
    return {
        at: (int(m), 99 if age >= warm_age[m] else int(age))
        for at, (m, age) in enumerate(zip(layer.owner[row], layer.age[row], strict=True))
        if m >= 0
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_a_state_is_dropped_only_if_another_is_ahead_after_paying_for_the_change(seed: int) -> None:
    problem = window(seed, Charge.SURVIVORS)
    search, beam = state_search(problem)
    layer = random_layer(problem, beam, 24, seed)
    room, warm_age = np.empty(layer.owner.shape[1], np.int64), beam.costs.warm_age.tolist()
    outcomes = set()
    for row in range(24):
        for other in range(24):
            if layer.value[other] < layer.value[row]:
                continue
            cost = reference.cost_of_changing(
                problem, 1, held_in(layer, other, warm_age), held_in(layer, row, warm_age)
            )
            lead = float(layer.value[other] - layer.value[row])
            if abs(lead - cost) < 1e-9:
                continue
            found = selection._can_change(
                1, other, row, layer, search._choices, beam.costs, search._arrivals, room
            )
            assert found == (cost <= lead), (row, other)
            outcomes.add(found)
    assert True in outcomes


@pytest.mark.parametrize("seed", SEEDS)
def test_states_that_are_alike_become_equal(seed: int) -> None:
    problem = window(seed, Charge.SURVIVORS)
    search, beam = state_search(problem)
    alike = symmetries(problem.board)
    first = random_layer(problem, beam, 1, seed)
    layer = Layer(
        np.repeat(first.place, len(alike), 0),
        np.repeat(first.end, len(alike), 0),
        first.owner[0][alike],
        first.age[0][alike],
        np.repeat(first.value, len(alike)),
    )
    layer.place[:, 0] = [int(np.flatnonzero(order == 1)[0]) for order in alike]
    room = np.empty(layer.owner.shape[1], np.int64)
    for row in range(len(alike)):
        selection._rearrange(row, search._choices, layer, room)
    for part in layer[:4]:
        assert (part == part[0]).all()
