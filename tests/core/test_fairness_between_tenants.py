"""How evenly goodput is divided between tenants."""

from __future__ import annotations

import pytest

from migrator.core.fairness import fairness


def test_equal_tenants_have_an_index_of_one() -> None:
    equal = fairness({"a": 0.4, "b": 0.4, "c": 0.4})
    assert equal.worst_share == 0.4
    assert equal.jain_index == pytest.approx(1.0)


def test_one_tenant_with_everything_has_an_index_of_one_over_all() -> None:
    found = fairness({"a": 0.0, "b": 0.9, "c": 0.0, "d": 0.0})
    assert (found.worst_tenant, found.worst_share) == ("a", 0.0)
    assert found.jain_index == pytest.approx(0.25)


def test_the_index_is_the_square_of_the_sum_over_the_sum_of_squares() -> None:
    found = fairness({"a": 0.9, "b": 0.3})
    assert found.worst_tenant == "b"
    assert found.jain_index == pytest.approx(1.2**2 / (2 * (0.81 + 0.09)))


def test_tenants_that_all_get_nothing_are_equal() -> None:
    assert fairness({"a": 0.0, "b": 0.0}).jain_index == 1.0
