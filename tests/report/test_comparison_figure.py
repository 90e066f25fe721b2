"""Comparisons drawn: page, picture and files, in which a policy always looks the same."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from support.outcomes import compared, run

from migrator.core.comparison import summarise
from migrator.core.errors import InputError
from migrator.policies.registry import policies
from migrator.report.comparison import comparison_page, draw_comparison
from migrator.report.page import Bars, Page, Table
from migrator.report.paint import policy_paints


def blocks(page: Page, anchor: str) -> tuple[object, ...]:
    return next(section.blocks for section in page.sections if section.anchor == anchor)


def test_policies_are_grouped_by_scenario_with_intervals() -> None:
    rows = compared(("migrator", "peer 1"))
    goodput, *_ = blocks(comparison_page(rows), "measures")
    assert isinstance(goodput, Bars)
    assert goodput.categories == ("w0", "w1", "all scenarios")
    migrator, peer = goodput.series
    assert (migrator.name, peer.name) == ("migrator", "peer 1")
    assert migrator.values[:2] == (rows[0].goodput_share.mean, rows[2].goodput_share.mean)
    assert migrator.half_widths is None
    assert peer.half_widths is not None
    difference = rows[1].goodput_share.difference_from(rows[0].goodput_share)
    assert difference is not None
    assert peer.half_widths[0] == difference.half_width
    assert migrator.paint != peer.paint


def test_a_scenario_ranks_its_policies_with_gains() -> None:
    rows = compared(("migrator", "peer 1", "peer 2"))
    (table,) = blocks(comparison_page(rows), "in-all-scenarios")
    assert isinstance(table, Table)
    assert "95% confidence interval of the difference from migrator" in table.caption
    assert [row[0] for row in table.rows] == ["migrator", "peer 1", "peer 2"]
    assert table.rows[0][-2].startswith("+")
    assert [row[-1][0] for row in table.rows] == ["-", "-", "-"]
    assert table.rows[0][-1] == "-"
    assert table.highlights == {(0, 2)}


def test_png_shows_every_policy(tmp_path: Path) -> None:
    from matplotlib.image import imread

    names = ("migrator", "ekya", "astraea")
    draw_comparison(summarise(map(run, names)), tmp_path / "out.png")
    content = (tmp_path / "out.png").read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    assert (width, height > 1000) == (1600, True)
    pixels = np.rint(imread(tmp_path / "out.png")[..., :3] * 255).astype(int)
    for paint in policy_paints(names):
        colour = [int(paint.fill[at : at + 2], 16) for at in (1, 3, 5)]
        assert (pixels == colour).all(axis=2).sum() > 20_000
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        draw_comparison((), tmp_path / "out.png")
    assert list(tmp_path.iterdir()) == []


def test_packaged_policies_look_different_and_any_other_one_differs_from_them() -> None:
    packaged = [*policies(), "best static split"]
    own = [policy_paints([name])[0] for name in packaged]
    assert len(set(own)) == len(packaged)
    assert policy_paints(packaged) == tuple(own)
    for number in range(40):
        (other,) = policy_paints([f"my.module:policy_{number}"])
        assert other not in own


@pytest.mark.parametrize("policy", ["migrator", "oracle", "my.module:policy"])
def test_runs_of_one_policy_look_different(policy: str) -> None:
    paints = policy_paints([policy] * 4)
    assert len(set(paints)) == 4
    assert paints[0] == policy_paints([policy])[0]
