"""The report of runs: what its tables and charts say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.html import ParsedPage
from support.outcomes import run

from migrator.core.catalogue import board
from migrator.core.outcome import RunOutcome
from migrator.observe.page import Areas, Bars, Lines, Page, Slices, Table
from migrator.observe.page_html import page_text
from migrator.observe.run_report import MOST_WINDOWS, run_page

H200 = board("H200-141GB")


def report(*outcomes: RunOutcome) -> Page:
    return run_page(outcomes, H200, 1.0)


def table(page: Page, caption: str) -> Table:
    blocks = [each for section in page.sections for each in section.blocks]
    return next(b for b in blocks if isinstance(b, Table) and b.caption.startswith(caption))


def column(given: Table, header: str) -> list[str]:
    plain = [each.replace("\u00ad", "") for each in given.headers]
    return [row[plain.index(header)] for row in given.rows]


def test_the_tables_have_every_figure_of_the_outcome() -> None:
    outcome = run(windows=2)
    page = report(outcome)
    tally = outcome.tally
    whole = table(page, "All windows")
    assert column(whole, "goodput share") == [f"{tally.goodput_share:.1%}"]
    assert column(whole, "while reconfiguring") == [f"{tally.while_reconfiguring}"]
    assert column(whole, "reconfigurations") == ["6"]
    assert column(whole, "planning (s)") == ["0.5"]
    windows = table(page, "By window, all tenants")
    assert column(windows, "received") == [str(each.tally.received) for each in outcome.windows]
    tenants = table(page, "By window and tenant")
    assert column(tenants, "tenant") == ["bert", "vit"] * 2
    assert column(tenants, "late") == ["50"] * 4
    assert column(tenants, "dropped") == ["25"] * 4
    assert column(tenants, "retrained")[:2] == ["3 s, 62.0% → 81.0%", "never, 62.0%"]
    assert column(table(page, "Goodput the plan"), "predicted to measured") == ["+5.0%"] * 2


def test_what_became_of_requests_adds_up_to_what_was_received() -> None:
    outcome = run(windows=3)
    charts = [b for b in report(outcome).sections[1].blocks if isinstance(b, Bars)]
    for chart, received in (
        (charts[0], [each.tally.received for each in outcome.windows]),
        (charts[1], [each.received for each in outcome.tenants.values()]),
    ):
        sums = [sum(each or 0.0 for each in place) for place in zip(*_values(chart), strict=True)]
        assert chart.stacked
        assert sums == [pytest.approx(each) for each in received]


def _values(chart: Bars) -> list[tuple[float | None, ...]]:
    return [each.values for each in chart.series]


def test_at_most_12_windows_are_drawn_and_the_page_says_so() -> None:
    section = report(run(windows=MOST_WINDOWS + 1)).sections[-1]
    assert sum(isinstance(each, Slices) for each in section.blocks) == MOST_WINDOWS
    assert sum(isinstance(each, Lines) for each in section.blocks) == MOST_WINDOWS
    assert "The first 12 of 13 windows are drawn." in section.paragraphs
    assert len(report(run(windows=2)).sections[-1].paragraphs) == 1


def test_arrivals_stand_beside_what_was_expected() -> None:
    (chart,) = [b for b in report(run(windows=1)).sections[-1].blocks if isinstance(b, Lines)]
    names = [(each.name, each.dashed) for each in chart.series]
    assert names == [
        ("bert", False),
        ("bert, expected", True),
        ("vit", False),
        ("vit, expected", True),
    ]
    assert chart.until == 6.0


def test_shares_are_drawn_as_percentages_and_promise_nothing() -> None:
    page = report(run("ekya", mps=True, windows=1))
    assert any(isinstance(each, Areas) for each in page.sections[-1].blocks)
    assert not any(isinstance(each, Lines) for each in page.sections[1].blocks)


def test_an_instance_kept_over_the_windows_end_is_not_new() -> None:
    outcome = run(windows=2)
    kept = tuple(
        replace(each, slots=(outcome.windows[0].slots[0],) * 6) for each in outcome.windows
    )
    charts = report(replace(outcome, windows=kept)).sections[-1].blocks
    assert all(each.starts == () for each in charts if isinstance(each, Slices))
    moved = report(outcome).sections[-1].blocks
    assert any(each.starts for each in moved if isinstance(each, Slices))


def test_several_runs_are_ranked_and_told_apart() -> None:
    page = report(run("ekya", mps=True, late=90), run(late=10))
    ranking = page.sections[0].blocks[0]
    assert isinstance(ranking, Bars)
    assert ranking.categories == ("migrator", "ekya")
    assert table(page, "All windows").highlights == {(1, 3)}
    names = [each.title for each in report(run(seed=1), run(seed=2)).sections]
    assert names[1] == "migrator, seed 1: windows and tenants"
    anchors = [each.anchor for each in report(run(), run()).sections]
    assert len(set(anchors)) == len(anchors)


def test_long_tables_are_folded() -> None:
    assert table(report(run(windows=31)), "By window and tenant").folded
    assert not table(report(run(windows=30)), "By window and tenant").folded


def test_a_run_of_nothing_is_still_a_page() -> None:
    silent = replace(run(windows=1), windows=())
    assert ParsedPage(page_text(report(silent), "")).tags["h1"] == 1


def test_the_page_is_well_formed() -> None:
    text = page_text(report(run(), run("ekya", mps=True)), "/* plotly */")
    found = ParsedPage(text)
    assert found.tags["figure"] == found.tags["details"]
    assert "bert" in found.words
