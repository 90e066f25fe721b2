"""A policy has one colour on every page."""

from __future__ import annotations

import pytest
from support.outcome_records import recorded
from support.outcomes import run

from migrator.core.catalogue import board
from migrator.core.comparison import summarise
from migrator.policies.registry import policies
from migrator.report.comparison import comparison_page
from migrator.report.page import Bars, Page, paints
from migrator.report.paint import Paint, policy_paints
from migrator.report.run_page import run_page


def looks(page: Page, names: set[str]) -> dict[str, set[Paint]]:
    """Name of a policy -> its looks in all bars of a page."""
    paints_of: dict[str, set[Paint]] = {}
    for chart in (block for part in page.sections for block in part.blocks):
        if not isinstance(chart, Bars):
            continue
        for series, paint in zip(chart.series, paints(chart.series), strict=True):
            if series.name in names:
                paints_of.setdefault(series.name, set()).add(paint)
            for name, category in zip(chart.categories, series.bar_paints or (), strict=False):
                paints_of.setdefault(name, set()).add(category)
    return {name: paints_of[name] for name in paints_of if name in names}


def compared_runs(names: tuple[str, ...]) -> Page:
    return run_page([recorded(run(name)) for name in names], board("H200-141GB"))


def test_a_policy_has_one_colour_on_all_pages() -> None:
    # two orders: a colour by position would differ
    names = ("paris", "astraea", "own.module:policy", "ekya", "migrator")
    on_runs = looks(compared_runs(names), set(names))
    on_comparison = looks(comparison_page(summarise(map(run, reversed(names)))), set(names))
    assert set(on_runs) == set(on_comparison) == set(names)
    for name in names:
        assert len(on_runs[name]) == 1
        assert on_runs[name] == on_comparison[name]


def test_packaged_policies_look_different_and_any_other_one_differs_from_most() -> None:
    packaged = [*policies(), "best static split"]
    own = [policy_paints([name])[0] for name in packaged]
    assert len(set(own)) == len(packaged)
    splits = [name for name in packaged if name.startswith("static-")]
    for number in range(40):
        (other,) = policy_paints([f"my.module:policy_{number}"])
        assert other not in {
            paint for name, paint in zip(packaged, own, strict=True) if name not in splits
        }


@pytest.mark.parametrize("policy", ["migrator", "oracle", "my.module:policy"])
def test_runs_of_one_policy_have_its_hue_in_different_patterns(policy: str) -> None:
    paints = policy_paints([policy] * 4)
    assert len({paint.hue for paint in paints}) == 1
    assert len(set(paints)) == 4
    assert paints[0] == policy_paints([policy])[0]
