"""How evenly goodput is divided between tenants."""

from __future__ import annotations

import pytest

from migrator.core.fairness import fairness
from migrator.core.outcome import Tally


def _tallies(*goodputs: tuple[int, float]) -> dict[str, Tally]:
    """Tenants a, b, c, ... by what they received and their goodput."""
    names = "abcdefg"
    return {
        names[at]: Tally(received, goodput=goodput)
        for at, (received, goodput) in enumerate(goodputs)
    }


def test_one_tenant_with_everything_has_an_index_of_one_over_all() -> None:
    found = fairness(_tallies((10, 0.0), (10, 9.0), (10, 0.0), (10, 0.0)))
    assert (found.worst_tenant, found.worst_share) == ("a", 0.0)
    assert found.jain_index == pytest.approx(0.25)


def test_the_index_is_the_square_of_the_sum_over_the_sum_of_squares() -> None:
    found = fairness(_tallies((100, 90.0), (10, 3.0)))
    assert found.worst_tenant == "b"
    assert found.jain_index == pytest.approx(1.2**2 / (2 * (0.81 + 0.09)))


def test_without_any_goodput_or_request_all_are_equal() -> None:
    assert fairness(_tallies((10, 0.0), (20, 0.0))).jain_index == 1.0
    nobody = fairness({})
    assert (nobody.worst_tenant, nobody.worst_share, nobody.jain_index) == (None, 0.0, 1.0)
