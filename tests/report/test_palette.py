"""Colours: a hue belongs to tenants or to an outcome, never to both."""

from __future__ import annotations

from colorsys import rgb_to_hls
from itertools import combinations, product

from migrator.report.paint import DROPPED, GOOD, HUES, LATE, WRONG, paint_of, shades


def _hue(colour: str) -> float:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 360 * rgb_to_hls(red, green, blue)[0]


def _apart(one: str, other: str) -> float:
    """Degrees between two hues."""
    gap = abs(_hue(one) - _hue(other))
    return min(gap, 360 - gap)


OUTCOMES = tuple(paint.shade.fill for paint in (GOOD, WRONG, LATE, DROPPED))


def test_no_outcome_has_the_hue_of_a_tenant_or_policy() -> None:
    others = {shade.fill for shade in shades(2 * HUES)} | {
        paint_of(at).shade.fill for at in range(5 * HUES)
    }
    assert len(others) == HUES
    for outcome, tenant in product(OUTCOMES, others):
        assert _apart(outcome, tenant) > 15, (outcome, tenant)


def test_outcomes_have_hues_of_their_own_and_wrong_is_far_from_good() -> None:
    for combination, other in combinations(OUTCOMES, 2):
        assert _apart(combination, other) > 12, (combination, other)
    assert _apart(GOOD.fill, WRONG.fill) > 120
