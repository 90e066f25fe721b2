"""The numbers behind charts, as tables."""

from __future__ import annotations

import pytest

from migrator.report.chart_tables import numbers_of
from migrator.report.page import Axis, HeatMap, Lines, Series, Slab, Slices, Use

TIME = Axis("time", "s")


@pytest.mark.parametrize(
    ("value", "axis", "words"),
    [
        (0.8123, Axis("x", share=True), "81.2%"),
        (1234567.8, Axis("x", "requests"), "1,234,568 requests"),
        (3.0, Axis("x"), "3"),
        (0.012346, TIME, "0.01235 s"),
        (None, TIME, "-"),
        (float("nan"), TIME, "-"),
    ],
)
def test_values_are_said_as_their_axis_measures(
    value: float | None, axis: Axis, words: str
) -> None:
    assert axis.text(value) == words


def test_long_lines_are_tabulated_by_means() -> None:
    chart = Lines("L", tuple(map(float, range(1000))), (Series("a", (1.0, 3.0) * 500),), TIME, TIME)
    table = numbers_of(chart)
    assert len(table.rows) == 250
    assert table.rows[1] == ("4", "2")
    assert "means of 4 neighbouring points" in table.caption


def test_short_lines_are_tabulated_whole() -> None:
    chart = Lines("L", (0.5, 1.0), (Series("a", (1.0, None), (0.5, None)),), TIME, TIME)
    assert numbers_of(chart).rows == (("0.5", "1\u00a0±\u00a00.5"), ("1", "-"))


def test_heat_maps_are_tabulated_as_they_are() -> None:
    share = Axis("goodput", share=True)
    chart = HeatMap("H", ("c", "d"), ("r",), ((0.1, None),), Axis("policy"), Axis("load"), share)
    table = numbers_of(chart)
    assert (table.headers, table.rows) == (("load", "c", "d"), (("r", "10.0%", "-"),))


def test_slices_are_tabulated_by_slab() -> None:
    slabs = (
        Slab("bert", Use.SERVING, "3g", 0, 4, 0.0, 5.5),
        Slab("bert", Use.SERVING, "1g", 4, 1, 0.0, 10.0),
    )
    chart = Slices("S", 8, 10.0, ("bert",), slabs)
    assert numbers_of(chart).rows == (
        ("bert", "3g", "0 to 3", "0", "5.5"),
        ("bert", "1g", "4", "0", "10"),
    )
