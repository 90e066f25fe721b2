"""A comparison as PNG: a panel per measure, bars per scenario and policy with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from migrator.core.comparison import ALL_SCENARIOS, Row
from migrator.report.comparison_report import MEASURES, names_of
from migrator.report.page import paint_of
from migrator.report.page_charts import shade_of
from migrator.report.plan_blocks import short
from migrator.report.plan_png import STYLE

_DPI = 200
_NARROWEST, _WIDEST, _BAR, _PANEL = 8.0, 20.0, 0.075, 1.6
_LEFT, _RIGHT, _GAP, _TOP, _LEGEND_ROW = 0.6, 0.15, 0.35, 0.15, 0.18
_GROUP = 0.8
"""The part of a scenario's place that its bars fill."""


def write(rows: Sequence[Row], path: Path) -> None:
    """Write the picture to `path`."""
    with mpl.rc_context(STYLE):
        _figure(rows).savefig(path, format="png", dpi=_DPI)


def _figure(rows: Sequence[Row]) -> Figure:
    scenarios, policies = names_of(rows)
    if any(row.scenario == ALL_SCENARIOS for row in rows):
        scenarios = [*scenarios, ALL_SCENARIOS]
    width = min(_WIDEST, max(_NARROWEST, _BAR * len(scenarios) * (len(policies) + 1)))
    columns = _legend_columns(policies, width - _LEFT)
    above = _TOP + _LEGEND_ROW * -(-len(policies) // columns) + 0.25
    names = _NamedPlaces(scenarios, (width - _LEFT - _RIGHT) / len(scenarios))
    height = above + len(MEASURES) * (_PANEL + _GAP) + names.tall
    figure = Figure(figsize=(width, height))
    figure.legend(
        handles=[_key(policy, index) for index, policy in enumerate(policies)],
        loc="upper left",
        bbox_to_anchor=(_LEFT / width, 1 - _TOP / height),
        ncols=columns,
    )
    for number, measure in enumerate(MEASURES):
        top = above + number * (_PANEL + _GAP)
        box = (_LEFT, height - top - _PANEL, width - _LEFT - _RIGHT, _PANEL)
        axes = figure.add_axes(_in_parts(box, width, height))
        _draw(axes, rows, scenarios, policies, measure)
        axes.tick_params(labelbottom=number == len(MEASURES) - 1)
    names.put(axes)
    return figure


class _NamedPlaces:
    """The scenarios' names under the lowest panel, slanted where they are too long to lie."""

    def __init__(self, scenarios: Sequence[str], room: float) -> None:
        self.names = [short(each, 28) for each in scenarios]
        longest = max(map(len, self.names)) * 0.055
        self.slanted = longest > room
        self.tall = 0.15 + (longest * 0.7 if self.slanted else 0.1)

    def put(self, axes: Axes) -> None:
        look: dict[str, Any] = {}
        if self.slanted:
            look = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(self.names)), self.names, **look)


def _in_parts(
    box: tuple[float, float, float, float], width: float, height: float
) -> tuple[float, float, float, float]:
    left, bottom, wide, tall = box
    return left / width, bottom / height, wide / width, tall / height


def _legend_columns(policies: Sequence[str], room: float) -> int:
    """All in one row where they fit, else as many as the widest one allows."""
    wide = [0.45 + 0.055 * len(short(each, 24)) for each in policies]
    return len(policies) if sum(wide) <= room else max(1, int(room / max(wide)))


def _key(policy: str, index: int) -> Patch:
    return Patch(label=short(policy, 24), **_look(index))


def _look(index: int) -> dict[str, Any]:
    paint = paint_of(index)
    shade = shade_of(paint)
    if paint.hatched:
        ground = "#FFFFFF" if paint.light else shade.light
        return {"facecolor": ground, "edgecolor": shade.fill, "hatch": "//////", "linewidth": 0.4}
    return {"facecolor": shade.light if paint.light else shade.fill, "linewidth": 0}


def _draw(
    axes: Axes,
    rows: Sequence[Row],
    scenarios: Sequence[str],
    policies: Sequence[str],
    measure: str,
) -> None:
    found = {(row.scenario, row.policy): MEASURES[measure](row) for row in rows}
    bar = _GROUP / len(policies)
    for index, policy in enumerate(policies):
        places = [at for at, each in enumerate(scenarios) if (each, policy) in found]
        own = [found[scenarios[at], policy] for at in places]
        x = np.array(places) - _GROUP / 2 + bar * (index + 0.5)
        axes.bar(x, [100 * each.mean for each in own], bar * 0.92, **_look(index))
        widths = [100 * (each.half_width or np.nan) for each in own]
        if not all(np.isnan(widths)):
            means = [100 * each.mean for each in own]
            look: dict[str, Any] = {"ecolor": "#222222", "elinewidth": 0.6, "capsize": 1}
            axes.errorbar(x, means, widths, fmt="none", **look)
    axes.set_title(measure, loc="left", pad=3)
    axes.set_ylabel("%")
    axes.set_xlim(-0.5, len(scenarios) - 0.5)
    axes.set_xticks(range(len(scenarios)))
    axes.grid(axis="y", color="#E4E4E4", lw=0.4)
    axes.set_axisbelow(True)
    if ALL_SCENARIOS in scenarios:
        axes.axvline(len(scenarios) - 1.5, color="#777777", lw=0.6)
