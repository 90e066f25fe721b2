"""Kernels against the same things in slow, plain Python (tests/support/reference_planner.py)."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from support import reference_planner as reference
from support.problems import random_problem, with_better_ones

from migrator.core.catalogue import placements
from migrator.core.problem import Charge, Problem
from migrator.planning.arrays import Floats
from migrator.planning.exact.best_path import best_path
from migrator.planning.exact.bounds import tabulate_bounds
from migrator.planning.exact.expand import _shrink, empty_scratch, expand
from migrator.planning.exact.prices import Prices, bound_at
from migrator.planning.exact.schedule import Start, occupied_by
from migrator.planning.exact.space import Space, build_space
from migrator.planning.exact.tables import NEVER, GoodputTables, build_tables
from migrator.planning.exact.transition import DONE, WAITING, LabelTable, empty_labels, empty_step
from migrator.planning.ranking import descending
from migrator.planning.survivors.arrivals import arrivals_of, expected

SEEDS = range(6)
ROWS = 4096
"""Room for labels; none is dropped for lack of it."""


@cache
def window(seed: int, charge: Charge = Charge.PAPER) -> Problem:
    """Two tenants and five slots; some retrainings are optional, some forecasts have scenarios.

    Half of the windows have two configurations.
    """
    problem = random_problem(
        seed, tenants=2, slots=5, charge=charge, scenarios=1 + seed % 2, optional=seed % 3 == 0
    )
    return with_better_ones(problem) if seed % 2 else problem


@cache
def tabulated(seed: int) -> tuple[Space, GoodputTables]:
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
    sizes, compared = space.geometry.sizes, 0
    for m, tenant in enumerate(problem.tenants):
        to_go = reference.value_to_go(problem, m, prices)
        retrains = problem.may_retrain(tenant)
        for p, pattern in enumerate(space.patterns[m]):
            for t in range(problem.slots + 1):
                for c in range(max(1, len(tenant.configurations)) if retrains else 1):
                    done = to_go(t, reference.Done(c), pattern)
                    assert bounds.done[m, c, t, p] == pytest.approx(done)
                if not retrains:
                    continue
                waiting = to_go(t, reference.WAITING, pattern)
                if waiting == reference.NEVER:
                    assert bounds.waiting[m, t, p] < NEVER / 2
                else:
                    # starts are taken from `running`, which is rounded up
                    assert bounds.waiting[m, t, p] == pytest.approx(waiting, rel=1e-6, abs=1e-4)
                    assert bounds.waiting[m, t, p] >= waiting - 1e-9
                for c, durations in enumerate(tables.durations[m].reshape(-1, len(sizes))):
                    for end in range(t, min(problem.slots, t + int(durations.max())) + 1):
                        running = bounds.running[m, c, end, end - t, p]
                        exact = to_go(t, reference.Runs(end, c), pattern)
                        assert running == pytest.approx(exact, rel=1e-6, abs=1e-4)
                        assert running >= exact, "rounded up"
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
        for c, choice in enumerate(tenant.configurations):
            for at, place in enumerate(placements(problem.board)):
                duration = choice.slots.get(place.gpcs, slots + 1)
                if problem.may_retrain(tenant) and duration <= slots and rng.random() < 0.5:
                    schedule[m] = Start(at, slots - duration, slots - seed % 2, c)
    if None not in schedule:
        schedule[1] = None
    occupied = occupied_by(space, tuple(schedule), slots)
    ends = [
        None if start is None else reference.Runs(start.end, start.configuration)
        for start in schedule
    ]
    value, path = best_path(space, tables, tuple(schedule))
    expected_value, _ = reference.best_inference(problem, [int(mask) for mask in occupied], ends)
    if expected_value == reference.NEVER:
        assert value < NEVER / 2
        return
    later = sum(
        float(tables.later[m, 1 + start.configuration])
        for m, start in enumerate(schedule)
        if start is not None
    )
    assert value - later == pytest.approx(expected_value)
    assert all(space.geometry.placeable[occupied[t], space.priced.total[path[t]]] for t in range(5))


def first_labels(problem: Problem, space: Space) -> tuple[LabelTable, reference.Labels]:
    """Before slot 0, for the kernel and for the reference."""
    (joints, tenants), status = space.joint.shape, []
    labels = empty_labels(ROWS, tenants, joints)
    for m, tenant in enumerate(problem.tenants):
        status.append(reference.first_status(problem, tenant))
        labels.way[0, m] = WAITING if status[m] == reference.WAITING else DONE
    labels.entries[0], labels.joint[0, 0], labels.value[0, 0] = 1, 0, 0.0
    labels.end[0], labels.story[0, 0] = 0, -1
    return labels, {reference.Label(tuple(status), (-1,) * tenants): {None: 0.0}}


@pytest.mark.parametrize("share", [None, 0.7])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_labels_of_every_slot(seed: int, share: float | None) -> None:
    problem, (space, tables) = window(seed), tabulated(seed)
    rows, prices = random_prices(seed)
    bounds = tabulate_bounds(space, tables, Prices(rows, 0.0))
    incumbent = NEVER if share is None else share * reference.bound(problem, prices)
    now, expected = first_labels(problem, space)
    then, count, used = empty_labels(ROWS, *space.joint.shape[::-1]), 1, 0
    nodes, seen = np.zeros((1 << 16, 4), np.int32), np.full(4 * ROWS, -1, np.int64)
    rest = empty_step(space, tables), empty_scratch(ROWS, space, tables)
    for slot in range(problem.slots):
        count, used, missed, _ = expand(
            slot, incumbent, ROWS, 1.0, space.arrays, tables, bounds, now, count, then,
            nodes, used, seen, *rest,
        )  # fmt: skip
        assert missed == NEVER
        expected = reference.following_labels(problem, slot, expected, prices, incumbent)
        assert named_labels(space, then, count) == named_expected(problem, expected)
        now, then = then, now


Named = tuple[tuple[reference.Status, ...], tuple[int, ...], frozenset[tuple[Any, float]]]


def named_labels(space: Space, labels: LabelTable, count: int) -> set[Named]:
    """Status, sizes of the retrainings, and entries: placements that are alike give the same."""
    sizes, named = space.geometry.sizes, set()
    for row in range(count):
        ways, used = labels.way[row].tolist(), labels.entries[row]
        status = tuple(
            reference.status_of(way, end, len(space.geometry.places))
            for way, end in zip(ways, labels.end[row].tolist(), strict=True)
        )
        joints = space.joint[labels.joint[row, :used]]
        patterns = (
            tuple(own[p] for own, p in zip(space.patterns, joint, strict=True)) for joint in joints
        )
        entries = dict(zip(patterns, labels.value[row, :used].tolist(), strict=True))
        on = tuple(
            sizes[space.arrays.way_option[way] % len(sizes)] if way >= 0 else 0 for way in ways
        )
        named.add((status, on, rounded(entries)))
    return named


def named_expected(problem: Problem, labels: reference.Labels) -> set[Named]:
    """The same of the reference's labels."""
    places = placements(problem.board)
    return {
        (
            label.status,
            tuple(places[at].gpcs if at >= 0 else 0 for at in label.place),
            rounded(entries),
        )
        for label, entries in labels.items()
    }


def rounded(entries: Mapping[Any, float]) -> frozenset[tuple[Any, float]]:
    return frozenset((joint, round(value, 6)) for joint, value in entries.items())


@pytest.mark.parametrize("keep", [8, 13, 30])
@pytest.mark.parametrize("seed", range(3))
def test_the_labels_that_stay_where_there_is_no_room_for_all(seed: int, keep: int) -> None:
    rows, tenants, rng = 40, 2, np.random.default_rng(seed)
    space, tables = tabulated(seed)
    labels = empty_labels(rows, tenants, 1)
    labels.way[:] = rng.choice([WAITING, DONE, 0], (rows, tenants), p=[0.1, 0.6, 0.3])
    labels.end[:] = np.arange(rows)[:, None]
    labels.bound[:], labels.spot[:], labels.entries[:] = rng.permutation(rows), 0, 0
    ranked = np.argsort(-labels.bound)
    phases = [str(np.minimum(labels.way[row], 0).tolist()) for row in ranked]
    stay = sorted(ranked[reference.labels_that_stay(phases, keep)].tolist())
    lost = labels.bound[[row for row in range(rows) if row not in stay]].max()
    seen = np.full(256, -1, np.int64)
    kept = _shrink(rows, keep, 1.0, labels, seen, empty_scratch(rows, space, tables))
    assert kept == (keep, lost)
    assert labels.end[:keep, 0].tolist() == stay


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
