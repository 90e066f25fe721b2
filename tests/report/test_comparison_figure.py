"""Comparisons drawn: what the page says, what the picture shows, and the files they become."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
from support.outcomes import run, tally

from migrator.core.comparison import Row, summarise
from migrator.core.errors import InputError
from migrator.core.scenario import LabelsAt
from migrator.records.outcome import WindowOutcome
from migrator.report.comparison import comparison_page, draw_comparison
from migrator.report.page import Bars, Page, Table
from migrator.report.paint import policy_paints
from migrator.report.plotly_charts import figure_of


def compared(policies: int = 2, scenarios: int = 2, seeds: int = 2) -> tuple[Row, ...]:
    names = ["migrator", *(f"peer {n}" for n in range(1, policies))]
    return summarise(
        run(policy, f"w{number}", seed, windows=1, late=10 + 10 * index + seed)
        for number in range(scenarios)
        for index, policy in enumerate(names)
        for seed in range(seeds)
    )


def blocks(page: Page, anchor: str) -> tuple[object, ...]:
    return next(section.blocks for section in page.sections if section.anchor == anchor)


def test_policies_are_grouped_by_scenario_with_intervals() -> None:
    rows = compared()
    goodput, *_ = blocks(comparison_page(rows), "measures")
    assert isinstance(goodput, Bars)
    assert goodput.categories == ("w0", "w1")
    migrator, peer = goodput.series
    assert (migrator.name, peer.name) == ("migrator", "peer 1")
    assert migrator.values == (rows[0].goodput_share.mean, rows[2].goodput_share.mean)
    assert migrator.half_widths is None
    assert peer.half_widths is not None
    difference = rows[1].goodput_share.difference_from(rows[0].goodput_share)
    assert difference is not None
    assert peer.half_widths[0] == difference.half_width
    assert migrator.paint != peer.paint


def test_one_seed_has_no_intervals() -> None:
    goodput, *_ = blocks(comparison_page(compared(seeds=1)), "measures")
    assert isinstance(goodput, Bars)
    assert all(row.half_widths is None for row in goodput.series)
    assert "±" not in comparison_page(compared(seeds=1)).lead


def unlike() -> tuple[Row, ...]:
    """Goodput from almost nothing to almost all, in opposite seeds."""
    return summarise(
        replace(run(policy, seed=seed), windows=(served(in_time),))
        for policy, shares in (("migrator", (0.99, 0.02)), ("ekya", (0.02, 0.99)))
        for seed, in_time in enumerate(shares)
    )


def served(in_time: float) -> WindowOutcome:
    (made,) = run(windows=1, tenants=("bert",)).windows
    counted = tally(1000, late=round(1000 * (1 - in_time)), dropped=0, accuracy=1.0)
    return replace(made, tenants=(replace(made.tenants[0], tally=counted),))


def test_no_bar_and_no_error_bar_leaves_0_to_100_percent() -> None:
    page = comparison_page(unlike())
    charts = [block for part in page.sections for block in part.blocks if isinstance(block, Bars)]
    widest = 0.0
    for chart in charts:
        across = "x" if chart.horizontal else "y"
        for trace in figure_of(chart)["data"]:
            errors = trace.get(f"error_{across}", {"array": (), "arrayminus": ()})
            both = zip_longest(trace[across], errors["arrayminus"], errors["array"])
            for value, below, above in both:
                assert 0 <= value - (below or 0) <= value + (above or 0) <= 1
                widest = max(widest, (below or 0) + (above or 0))
    assert widest == pytest.approx(1)


def test_the_page_says_what_an_interval_is() -> None:
    page = comparison_page(unlike())
    sentence = "95% confidence interval of the difference from migrator with the same seeds"
    assert sentence in page.lead
    _, table = blocks(page, "in-quick")
    assert isinstance(table, Table)
    assert sentence in table.caption


def test_a_scenario_ranks_its_policies_with_gains() -> None:
    ranking, table = blocks(comparison_page(compared(policies=3)), "in-all-scenarios")
    assert isinstance(ranking, Bars)
    assert isinstance(table, Table)
    assert ranking.categories == ("migrator", "peer 1", "peer 2")
    assert [row[0] for row in table.rows] == ["migrator", "peer 1", "peer 2"]
    assert table.rows[0][-2].startswith("+")
    assert [row[-1][0] for row in table.rows] == ["-", "-", "-"]
    assert table.rows[0][-1] == "-"
    assert table.highlights == {(0, 2)}


def test_every_scenario_says_what_replanning_regains() -> None:
    rows = summarise(
        run(policy, name, late=late)
        for name in ("a", "b")
        for policy, late in (("migrator-once", 80), ("migrator-replanned", 60), ("oracle", 40))
    )
    paragraphs = {section.anchor: section.paragraphs for section in comparison_page(rows).sections}
    assert [anchor for anchor, texts in paragraphs.items() if texts] == [
        "in-all-scenarios",
        "in-a",
        "in-b",
    ]
    assert paragraphs["in-a"][0].endswith("replanning regains 50% of the oracle's lead.")
    assert not any(section.paragraphs for section in comparison_page(compared()).sections)


def test_what_holds_for_all_stands_in_the_lead() -> None:
    page = comparison_page(compared(), notes=[LabelsAt.FEEDBACK.words])
    assert page.lead.endswith(
        "Labels: those of a window come during it, and the next window learns them."
    )


def test_a_missing_run_leaves_a_gap() -> None:
    rows = summarise([run("migrator", "a"), run("ekya", "a"), run("ekya", "b")])
    goodput, *_ = blocks(comparison_page(rows), "measures")
    assert isinstance(goodput, Bars)
    assert goodput.series[0].values[1] is None


def test_png_shows_every_policy(tmp_path: Path) -> None:
    from matplotlib.image import imread

    policies = ("migrator", "ekya", "astraea")
    draw_comparison(summarise(map(run, policies)), tmp_path / "out.png")
    content = (tmp_path / "out.png").read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    assert (width, height > 1000) == (1600, True)
    pixels = np.rint(imread(tmp_path / "out.png")[..., :3] * 255).astype(int)
    for paint in policy_paints(policies):
        colour = [int(paint.fill[at : at + 2], 16) for at in (1, 3, 5)]
        assert (pixels == colour).all(axis=2).sum() > 20_000
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]


def test_png_grows_with_what_it_shows_and_takes_any_name(tmp_path: Path) -> None:
    rows = summarise(
        run(f"$\\frac{{ {n}", f"a rather long $name$ of scenario {s}", windows=1)
        for s in range(9)
        for n in range(12)
    )
    draw_comparison(rows, tmp_path / "out.png")
    width, _ = struct.unpack(">II", (tmp_path / "out.png").read_bytes()[16:24])
    assert 1600 < width <= 4000


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        draw_comparison((), tmp_path / "out.png")
    assert list(tmp_path.iterdir()) == []
