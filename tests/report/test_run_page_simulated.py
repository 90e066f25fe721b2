"""The report of runs: what its tables and charts say."""

from __future__ import annotations

from dataclasses import replace

from support.outcome_records import recorded
from support.outcomes import auto, run

from migrator.core.catalogue import board
from migrator.records.outcome import RunOutcome
from migrator.report.page import Bars, Lines, Page, Section, Slices, Table, Use
from migrator.report.run_page import MOST_WINDOWS, run_page

H200 = board("H200-141GB")


def report(*outcomes: RunOutcome) -> Page:
    return run_page([recorded(outcome) for outcome in outcomes], H200)


def table(page: Page, caption: str) -> Table:
    blocks = [block for section in page.sections for block in section.blocks]
    return next(b for b in blocks if isinstance(b, Table) and b.caption.startswith(caption))


def column(table: Table, header: str) -> list[str]:
    plain = [header.replace("\u00ad", "") for header in table.headers]
    return [row[plain.index(header)] for row in table.rows]


def test_the_tables_have_every_figure_of_the_outcome() -> None:
    outcome = run(windows=2)
    page = report(outcome)
    tally = outcome.tally
    whole = table(page, "All windows")
    assert column(whole, "goodput share")[-1] == f"{tally.goodput_share:.1%}"
    assert column(whole, "while reconfiguring")[-1] == f"{tally.while_reconfiguring}"
    windows = table(page, "By window and tenant")
    assert column(windows, "tenant") == ["bert", "vit", "all"] * 2
    received = [str(window.tally.received) for window in outcome.windows]
    assert column(windows, "received")[2::3] == received
    assert column(windows, "late")[:2] == ["50"] * 2
    assert column(windows, "dropped")[:2] == ["25"] * 2
    assert column(windows, "new instances") == ["1", "2", "3"] * 2
    assert column(windows, "retrained")[:2] == ["3 s, 62.0% → 81.0%", "no, 62.0%"]
    plans = table(page, "Plans")
    assert column(plans, "predicted to measured") == ["+5.0%"] * 2
    assert column(plans, "fluid model to measured") == ["+1.0%"] * 2
    assert column(plans, "planning (s)") == ["0.25"] * 2


def section(page: Page, anchor: str) -> Section:
    return next(part for part in page.sections if part.anchor.endswith(anchor))


def test_at_most_12_windows_are_drawn_and_the_page_says_so() -> None:
    drawn = section(report(run(windows=MOST_WINDOWS + 1)), "slices")
    # planned and held
    assert sum(isinstance(block, Slices) for block in drawn.blocks) == 2 * MOST_WINDOWS
    assert "The last 12 of 13 windows are drawn." in drawn.paragraphs
    assert len(section(report(run(windows=2)), "slices").paragraphs) == 2


def test_one_run_leads_with_what_was_held_over_all_windows() -> None:
    lead = report(run(windows=3)).sections[0].blocks[0]
    assert isinstance(lead, Slices)
    assert lead.title == "Windows 0 to 2: held"
    assert lead.until_s == 18.0
    apart = [
        block
        for block in section(report(run(windows=3)), "slices").blocks
        if isinstance(block, Slices)
    ]
    held = [chart for chart in apart if chart.title.endswith("held")]
    assert len(lead.slabs) == sum(len(chart.slabs) for chart in held)
    assert {slab.from_s // 6 for slab in lead.slabs} == {0, 1, 2}


def test_shares_are_drawn_as_percentages_and_predict_nothing() -> None:
    page = report(run("ekya", mps=True, windows=1))
    for chart in section(page, "slices").blocks:
        assert isinstance(chart, Slices)
        assert {slab.size for slab in chart.slabs} == {"20%"}
    titles = [getattr(block, "title", "") for block in page.sections[0].blocks[1:]]
    assert not any(title.startswith("Goodput") for title in titles)


def test_an_instance_kept_over_the_windows_end_is_not_cold() -> None:
    outcome = run(windows=2)
    kept = tuple(
        replace(window, slots=(outcome.windows[0].slots[0],) * 6) for window in outcome.windows
    )
    for simulated, expected in ((replace(outcome, windows=kept), False), (outcome, True)):
        charts = [
            block
            for block in section(report(simulated), "slices").blocks
            if isinstance(block, Slices)
        ]
        cold = any(slab.use is Use.COLD for chart in charts for slab in chart.slabs)
        assert cold is expected


def test_several_runs_are_ranked_and_named() -> None:
    page = report(run("ekya", mps=True, late=90), run(late=10))
    ranking = page.sections[0].blocks[0]
    assert isinstance(ranking, Bars)
    assert ranking.categories == ("migrator", "ekya")
    assert table(page, "All windows").highlights == {(1, 4)}
    names = [part.title for part in report(run(seed=1), run(seed=2)).sections]
    assert names[1] == "migrator, seed 1: Windows"
    anchors = [part.anchor for part in report(run(), run()).sections]
    assert len(set(anchors)) == len(anchors)


def test_several_runs_stand_side_by_side_by_window_and_tenant() -> None:
    runs = run("ekya", mps=True, late=60), run(late=10)
    result = report(*runs).sections[0]
    _, by_window, _, by_tenant = (block for block in result.blocks if isinstance(block, Bars))
    assert by_window.categories == ("0", "1")
    assert [row.name for row in by_window.series] == ["ekya", "migrator"]
    for series, outcome in zip(by_window.series, runs, strict=True):
        assert series.values == tuple(window.tally.goodput_share for window in outcome.windows)
    assert by_tenant.categories == ("bert", "vit")
    assert by_tenant.series[1].values == tuple(
        tenant.goodput_share for tenant in runs[1].tenants.values()
    )
    both = table(report(*runs), "Goodput share (%) by window and tenant")
    assert [row[:2] for row in both.rows] == [
        *(("0", "bert"), ("0", "vit"), ("1", "bert"), ("1", "vit")),
    ]
    share = runs[1].windows[1].tenants[1].tally.goodput_share
    assert both.rows[3][3] == f"{100 * share:.2f}"
    assert both.highlights == {(row, 3) for row in range(4)}
    assert table(report(run(), run("oracle")), "Goodput share (%) by").highlights == frozenset()


def test_many_windows_side_by_side_are_lines() -> None:
    result = report(run(windows=31), run("ekya", windows=31)).sections[0]
    lines, _ = (block for block in result.blocks if isinstance(block, Lines))
    assert lines.at == tuple(map(float, range(31)))
    assert table(report(run(windows=31), run(windows=31)), "Goodput share (%) by").folded


def test_the_lead_is_stated_where_all_three_were_run() -> None:
    late = {"migrator-once": 80, "migrator-replanned": 60, "oracle": 40}
    texts = (
        report(*(run(policy, late=late_requests) for policy, late_requests in late.items()))
        .sections[0]
        .paragraphs
    )
    assert texts[1].startswith("Window plan ")
    assert texts[1].endswith("replanning regains 50% of the oracle's lead.")
    several = [
        run(p, name, late=late_requests) for name in ("a", "b") for p, late_requests in late.items()
    ]
    texts = report(*several).sections[0].paragraphs
    assert [word.partition(":")[0] for word in texts[1:]] == ["a", "b", "all scenarios"]
    assert len(report(run(), run("oracle")).sections[0].paragraphs) == 2


def test_the_forecaster_chosen_for_a_tenant_is_an_event() -> None:
    events = table(report(auto(run(windows=2))), "Events")
    forecasts = [row[1:] for row in events.rows if row[2] == "forecast"]
    assert forecasts[2] == ("1", "forecast", "bert forecast by ridge: less loss for bert in 1")
    assert not [row for row in table(report(run()), "Events").rows if row[2] == "forecast"]


def test_long_tables_are_folded() -> None:
    assert table(report(run(windows=31)), "By window and tenant").folded
    assert not table(report(run(windows=20)), "By window and tenant").folded
