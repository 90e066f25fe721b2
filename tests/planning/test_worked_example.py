"""The numbers of the worked example of docs/planner.md."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support import reference_planner as reference
from support.make import only

from migrator.core.catalogue import board
from migrator.core.problem import Charge, Problem, Tenant
from migrator.planning.arrays import Floats
from migrator.planning.exact.prices import bound_at, find_prices
from migrator.planning.exact.space import Space, build_space
from migrator.planning.exact.tables import GoodputTables, build_tables
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


def sentences() -> list[str]:
    """What the page says of the example, with the numbers that the planner computes."""
    space, goodput = tables()
    pair = space.patterns[0].index((1, 1))
    slots = len(PRICED_SLOTS)
    rent = sum(reference.rent(PAPER, s, 0, 1, reference_prices(PRICE)) for s in range(SLOTS))
    found = find_prices(space, goodput, np.zeros(SLOTS, np.int64)).bound
    best, of_survivors = (make_plan(given, steady=True).goodput for given in (PAPER, SURVIVORS))
    return [
        f"Tenant `a` has {len(space.patterns[0])}:",
        f"{len(space.joint)} of the 25 pairs fit",
        f"0.8 x 20 = {goodput.keep[0, 1, 3, pair]:g} with 1+1",
        f"0.8 x min(20, 20 - 0.5 x 10) = {goodput.change[0, 1, 3, pair]:g}",
        f"serves with 2 GPCs: {alone(0, 0.0):g}. `b` holds 2 GPCs: {alone(1, 0.0):g}. "
        f"The bound is {bound(0.0):g}.",
        f"`a` earns {alone(0, PRICE):g} (on 1 GPC or on 2), `b` earns {alone(1, PRICE):g}, "
        f"and the board is rented out for {rent / slots:g} in each of the two slots: "
        f"a bound of {bound(PRICE):g}.",
        f"brings the bound to {found:.1f}; the best plan has {best:g}.",
        f"Under `paper` it is worth {best:g}:",
        f"Under `survivors` it is {of_survivors:g},",
    ]


def test_the_numbers_of_the_page_are_what_the_planner_computes() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert [sentence for sentence in sentences() if sentence not in page] == []
