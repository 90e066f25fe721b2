"""The oracle: the same plan as migrator's, made on what will really come."""

from __future__ import annotations

import pytest
from support.mig_views import observation, view

from migrator.policies.migrator import POLICIES
from migrator.policies.policy import Sight

ORACLE = next(migrator for migrator in POLICIES if migrator.name == "oracle")


def test_it_asks_for_the_truth() -> None:
    assert ORACLE.sight is Sight.TRUTH


def test_it_plans_for_what_comes() -> None:
    """Four 1g answer 400 in a slot of 10 s, so of 100, 500 and 200 it serves 700, half right."""
    seen = observation(
        view("a", ahead=[[100.0, 500.0, 200.0]]), board="A30-24GB", slot_s=10.0, slots=3
    )
    plan = ORACLE.decide(seen).plan
    assert plan is not None
    assert plan.goodput == pytest.approx(350)
