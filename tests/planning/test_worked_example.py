"""The worked example of docs/planner.md, number by number."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support import reference_planner as reference
from support.make import only

from migrator.core.catalogue import board
from migrator.core.problem import Charge, Problem, Tenant
from migrator.planning.arrays import Floats
from migrator.planning.exact.bounds import tabulate_bounds
from migrator.planning.exact.expand import empty_scratch, expand
from migrator.planning.exact.prices import Prices, bound_at, find_prices
from migrator.planning.exact.schedule import running_of
from migrator.planning.exact.space import Space, build_space
from migrator.planning.exact.tables import GoodputTables, build_tables
from migrator.planning.exact.transition import DONE, WAITING, LabelTable, empty_labels, empty_step
from migrator.planning.solve import make_plan

PAGE = Path(__file__).parents[2] / "docs" / "planner.md"
SLOTS = 6
PRICED_SLOTS = (0, 1)
PRICE = 1.5
"""Per GPC, in the priced slots."""


def window(charge: Charge) -> Problem:
    capability = {1: 10.0, 2: 20.0}
    a = Tenant("a", ((10.0,) * 3 + (20.0,) * 3,), capability, 0.5, only(0.8, {1: 3, 2: 2}), 0.5, 1)
    b = Tenant("b", ((20.0,) * 2 + (10.0,) * 4,), capability, 0.6, (), 0.5, 1)
    return Problem(board("A30-24GB"), 1.0, SLOTS, charge, (a, b))


PAPER, SURVIVORS = window(Charge.PAPER), window(Charge.SURVIVORS)


@cache
def tables() -> tuple[Space, GoodputTables]:
    space = build_space(PAPER)
    return space, build_tables(PAPER, space)


def price_rows(price: float) -> Floats:
    """The price per GPC in the priced slots, as the kernels take it."""
    space, _ = tables()
    per_pattern = (space.pattern_sizes @ np.array(space.geometry.sizes)).reshape(-1)
    rows = np.zeros((len(per_pattern) + len(space.geometry.sizes), SLOTS))
    gpcs = np.concatenate([per_pattern, space.geometry.sizes])
    rows[:, PRICED_SLOTS] = price * gpcs[:, None]
    return rows


def reference_prices(price: float) -> reference.Prices:
    """The same for the reference."""
    return reference.Prices(
        {
            (m, slot, pattern): price * sum(pattern)
            for m, tenant in enumerate(PAPER.tenants)
            for slot in PRICED_SLOTS
            for pattern in reference.patterns_of(PAPER, tenant)
        },
        {(slot, size): price * size for slot in PRICED_SLOTS for size in (1, 2)},
    )


def alone(m: int, price: float) -> float:
    status = reference.first_status(PAPER, PAPER.tenants[m])
    return reference.value_to_go(PAPER, m, reference_prices(price))(0, status, None)


def bound(price: float) -> float:
    """By the kernels; the reference must agree."""
    found = bound_at(*tables(), np.zeros(SLOTS, np.int64), price_rows(price))
    assert found == pytest.approx(reference.bound(PAPER, reference_prices(price)))
    return found


@cache
def labels_after_slot_0() -> tuple[LabelTable, int]:
    """As a pass that drops nothing finds them, bounded by the example's prices."""
    space, goodput = tables()
    bounds = tabulate_bounds(space, goodput, Prices(price_rows(PRICE), bound(PRICE)))
    joints, tenants = space.joint.shape
    before, after = (empty_labels(16, tenants, joints) for _ in range(2))
    before.way[0], before.end[0], before.entries[0] = (WAITING, DONE), 0, 1
    before.joint[0, 0], before.value[0, 0], before.story[0, 0] = 0, 0.0, -1
    count, _, missed, _ = expand(
        0, -1.0, 16, 1.0, space.arrays, goodput, bounds, before, 1, after,
        np.zeros((16, 4), np.int32), 0, np.full(64, -1, np.int64),
        empty_step(space, goodput), empty_scratch(16, space, goodput),
    )  # fmt: skip
    assert missed < -1.0, "nothing was dropped for lack of room"
    return after, count


def value_after_slot_0(end: int, *patterns: tuple[int, ...]) -> float:
    """Of the label in which `a` retrains until `end`, with that joint pattern."""
    labels, count = labels_after_slot_0()
    space, _ = tables()
    joint = [own.index(p) for own, p in zip(space.patterns, patterns, strict=True)]
    (row,) = (row for row in range(count) if labels.end[row, 0] == end)
    entries = space.joint[labels.joint[row, : labels.entries[row]]]
    (at,) = np.flatnonzero((entries == joint).all(axis=1))
    return float(labels.value[row, at])


def ahead(end: int, *patterns: tuple[int, ...]) -> tuple[float, float, float]:
    """(rent, for `a`, for `b`) after slot 0; the kernels' bounds agree with the reference."""
    space, goodput = tables()
    bounds = tabulate_bounds(space, goodput, Prices(price_rows(PRICE), bound(PRICE)))
    labels, count = labels_after_slot_0()
    (row,) = (row for row in range(count) if labels.end[row, 0] == end)
    mask = int(space.geometry.place_mask[labels.way[row, 0]])
    p, q = (own.index(x) for own, x in zip(space.patterns, patterns, strict=True))
    prices = reference_prices(PRICE)
    rent = sum(
        reference.rent(PAPER, slot, mask if slot < end else 0, 0, prices)
        for slot in range(1, SLOTS)
    )
    for_a = reference.value_to_go(PAPER, 0, prices)(1, reference.Runs(end), patterns[0])
    for_b = reference.value_to_go(PAPER, 1, prices)(1, reference.Done(), patterns[1])
    assert bounds.rent[0, mask, end] - bounds.rent[0, mask, 1] == pytest.approx(rent)
    assert bounds.running[0, 0, end, end - 1, p] == pytest.approx(for_a, abs=1e-4)
    assert bounds.done[1, 0, 1, q] == pytest.approx(for_b)
    return rent, for_a, for_b


def state(**placements: tuple[int, ...]) -> reference.Held:
    """After slot 0 of `survivors`: what each tenant holds, all of it warm."""
    names = [tenant.name for tenant in SURVIVORS.tenants]
    return {at: (names.index(name), 1) for name, places in placements.items() for at in places}


@cache
def single_places() -> tuple[int, ...]:
    """The placements of one GPC, by their slice."""
    places = build_space(SURVIVORS).geometry.places
    return tuple(at for at, place in enumerate(places) if place.gpcs == 1)


def cost_of_x_to_y() -> float:
    first, second, third, _ = single_places()
    x, y = state(a=(first,), b=(second, third)), state(a=(first, second), b=(third,))
    return reference.cost_of_changing(SURVIVORS, 1, x, y)


def sentences() -> list[str]:
    """What the page says of the example, with the numbers that the planner computes."""
    space, goodput = tables()
    pair = space.patterns[0].index((1, 1))
    on_two, on_one = ahead(2, (1,), (1,)), ahead(3, (1,), (1, 1))
    two, one = value_after_slot_0(2, (1,), (1,)), value_after_slot_0(3, (1,), (1, 1))
    slots = len(PRICED_SLOTS)
    rent = sum(reference.rent(PAPER, s, 0, 1, reference_prices(PRICE)) for s in range(SLOTS))
    found = find_prices(space, goodput, np.zeros(SLOTS, np.int64)).bound
    best, of_survivors = (make_plan(given, steady=True).goodput for given in (PAPER, SURVIVORS))
    lead = (0.5 * 10 + 0.6 * 20) - (0.5 * 10 + 0.6 * 10)
    return [
        f"Tenant `a` has {len(space.patterns[0])}:",
        f"{len(space.joint)} of the 25 pairs fit",
        f"0.8 x 20 = {goodput.keep[0, 1, 3, pair]:g} with 1+1",
        f"0.8 x min(20, 20 - 0.5 x 10) = {goodput.change[0, 1, 3, pair]:g}",
        f"there are {labels_after_slot_0()[1]} labels",
        f"worth 0.5 x 10 + 0.6 x 10 = {two:g}.",
        f"worth 0.5 x 10 + 0.6 x 20 = {one:g}.",
        f"serves with 2 GPCs: {alone(0, 0.0):g}. `b` holds 2 GPCs: {alone(1, 0.0):g}. "
        f"The bound is {bound(0.0):g}.",
        f"`a` earns {alone(0, PRICE):g} (on 1 GPC or on 2), `b` earns {alone(1, PRICE):g}, "
        f"and the board is rented out for {rent / slots:g} in each of the two slots: "
        f"a bound of {bound(PRICE):g}.",
        f"brings the bound to {found:.1f}; the best plan has {best:g}.",
        f"Value {two:g}, rent {on_two[0]:g}, still to come for `a` {on_two[1]:g} and for `b` "
        f"{on_two[2]:g}: the bound is {two + sum(on_two):g}.",
        f"Value {one:g}, rent {on_one[0]:g}, `a` {on_one[1]:g}, `b` {on_one[2]:g}: "
        f"the bound is {one + sum(on_one):g}.",
        f"misses at most 0.8 x 5 = {cost_of_x_to_y():g}. X is ahead by {lead:g}",
        f"Under `paper` it is worth {best:g}:",
        f"Under `survivors` it is {of_survivors:g},",
    ]


def test_the_numbers_of_the_page_are_what_the_planner_computes() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert [sentence for sentence in sentences() if sentence not in page] == []


@pytest.mark.parametrize("problem", [PAPER, SURVIVORS], ids=["paper", "survivors"])
def test_the_best_plan_is_proven(problem: Problem) -> None:
    plan = make_plan(problem, steady=True)
    assert plan.gap == 0
    (retraining,) = plan.retrainings
    assert (retraining.tenant, retraining.start, retraining.end, retraining.gpcs) == ("a", 0, 3, 1)


def test_the_label_on_two_gpcs_is_dropped_once_the_best_plan_is_known() -> None:
    space, goodput = tables()
    bounds = tabulate_bounds(space, goodput, Prices(price_rows(PRICE), bound(PRICE)))
    joints, tenants = space.joint.shape
    assert running_of(PAPER, space) == (None, None)
    before, after = (empty_labels(16, tenants, joints) for _ in range(2))
    before.way[0], before.end[0], before.entries[0] = (WAITING, DONE), 0, 1
    before.joint[0, 0], before.value[0, 0], before.story[0, 0] = 0, 0.0, -1
    count, _, _, _ = expand(
        0, 108.0, 16, 1.0, space.arrays, goodput, bounds, before, 1, after,
        np.zeros((16, 4), np.int32), 0, np.full(64, -1, np.int64),
        empty_step(space, goodput), empty_scratch(16, space, goodput),
    )  # fmt: skip
    ends = [int(after.end[row, 0]) for row in range(count) if after.way[row, 0] >= 0]
    assert ends == [3]
