"""The studies' plots, drawn from their rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.measure import Row
from benchmarks.record import Record
from benchmarks.sections import growth_axes
from benchmarks.tables import at, median, numbers

_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#767676"
_STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "axes.axisbelow": True,
    "font.size": 9,
    "legend.frameon": False,
}


def draw_plots(records: dict[str, Record], folder: Path) -> dict[str, Path]:
    """STUDY.png for every study that has a plot and at least one plan."""
    drawn = {}
    for name, draw in PLOTS.items():
        record = records.get(name)
        if record is None or not record.good:
            continue
        drawn[name] = folder / f"{name}.png"
        with mpl.rc_context(_STYLE):
            draw(record).savefig(drawn[name], dpi=150)
    return drawn


def _solve_times(record: Record) -> Figure:
    """Every problem's time, shortest first: the share of problems solved by then."""
    figure, (axes,) = _panels(1)
    solve_s = sorted(numbers(record.good, "solve_s"))
    shares = [100 * (rank + 1) / len(solve_s) for rank in range(len(solve_s))]
    axes.step(solve_s, shares, where="post", color=_BLUE)
    axes.plot(solve_s, shares, "o", color=_BLUE, markersize=3)
    axes.axvline(1.0, color=_ORANGE, linestyle="--", label="goal: all by 1 s")
    axes.set(xlabel="solve time [s]", ylabel="problems solved [%]", ylim=(0, 103))
    axes.set_xlim(left=0)
    axes.legend(loc="center")
    return figure


def _versus_highs(record: Record) -> Figure:
    """The two times of each problem, on logarithmic axes with the goal as a line."""
    figure, (axes,) = _panels(1)
    marks = {False: ("o", "HiGHS proved the optimum"), True: ("^", "HiGHS was stopped")}
    for stopped, (marker, label) in marks.items():
        rows = at(record.good, "ratio_is_lower_bound", stopped)
        if rows:
            exact, highs = numbers(rows, "solve_s"), numbers(rows, "highs_solve_s")
            axes.plot(exact, highs, marker, color=_BLUE, label=label)
    exact = numbers(record.good, "solve_s")
    ends = [min(exact) / 1.5, max(exact) * 1.5]
    goal = [1000 * end for end in ends]
    axes.plot(ends, goal, "--", color=_ORANGE, label="goal: 1,000 times")
    axes.set(xscale="log", yscale="log", xlabel="exact planner [s]", ylabel="HiGHS [s]")
    axes.legend()
    return figure


def _more_tenants(record: Record) -> Figure:
    """Shortfall, certified gap and time, one dot per problem."""
    figure, panels = _panels(3)
    shown = (("shortfall", 100, "below the reference [%]"), ("gap", 100, "certified gap [%]"))
    for axes, (key, scale, label) in zip(panels, (*shown, _TIME), strict=True):
        _dots(axes, record.good, "tenants", key, scale)
        axes.set(xlabel="tenants", ylabel=label)
        axes.set_ylim(bottom=0)
    return figure


def _survivors(record: Record) -> Figure:
    """Certified gap, gain over the paper plan and time, one dot per problem."""
    figure, panels = _panels(3)
    shown = (("gap", 100, "certified gap [%]"), ("relative", 100, "of the paper plan's [%]"))
    for axes, (key, scale, label) in zip(panels, (*shown, _TIME), strict=True):
        _dots(axes, record.good, "tenants", key, scale)
        axes.set(xlabel="tenants", ylabel=label)
    panels[1].axhline(100, color=_GREY, linewidth=1)
    return figure


_TIME = ("solve_s", 1, "solve time [s]")


def _dots(axes: Axes, rows: list[Row], group: str, key: str, scale: float) -> None:
    """The rows of each group side by side, and a bar at their median."""
    groups = sorted(set(numbers(rows, group)))
    for place in groups:
        values = [scale * number for number in numbers(at(rows, group, int(place)), key)]
        if not values:
            continue
        middle = (len(values) - 1) / 2
        spread = [place + 0.3 * (n - middle) / len(values) for n in range(len(values))]
        axes.plot(spread, values, "o", color=_BLUE, markersize=3.5, alpha=0.7)
        axes.plot([place - 0.25, place + 0.25], [median(values)] * 2, color=_ORANGE)
    axes.set_xticks(groups, [f"{place:g}" for place in groups])


def _growth(record: Record) -> Figure:
    """Three panels: slots, tenants, overhead; median and range, hollow where unproven."""
    figure, panels = _panels(3, share_y=True)
    labels = {"slots": "slots", "tenants": "tenants", "overhead_s": "overhead [s]"}
    for axes, (axis, ticks) in zip(panels, growth_axes(record).items(), strict=True):
        rows = at(record.good, "axis", axis)
        measured = [tick for tick in ticks if at(rows, "at", tick)]
        times = [numbers(at(rows, "at", tick), "solve_s") for tick in measured]
        low, high = [min(time) for time in times], [max(time) for time in times]
        axes.fill_between(measured, low, high, color=_BLUE, alpha=0.15, linewidth=0)
        axes.plot(measured, [median(time) for time in times], color=_BLUE)
        _points(axes, rows)
        if axis == "slots":
            axes.set_xscale("log", base=2)
        axes.set_xticks(measured, [f"{tick:g}" for tick in measured])
        axes.set(xlabel=labels[axis], yscale="log")
    panels[0].set_ylabel("solve time [s]")
    panels[0].plot([], [], "o", color=_BLUE, markersize=3.5, label="proven optimal")
    panels[0].plot([], [], "o", color=_BLUE, mfc="white", markersize=3.5, label="gap above 0")
    panels[0].legend(loc="upper left")
    return figure


def _points(axes: Axes, rows: list[Row]) -> None:
    for row in rows:
        fill = _BLUE if row["gap"] == 0 else "white"
        where, value = numbers([row], "at"), numbers([row], "solve_s")
        axes.plot(where, value, "o", color=_BLUE, mfc=fill, markersize=3.5)


def _panels(count: int, share_y: bool = False) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(4.2 if count == 1 else 3.3 * count, 3.0), layout="constrained")
    grid = figure.subplots(1, count, sharey=share_y, squeeze=False)
    return figure, list(grid[0])


PLOTS: dict[str, Callable[[Record], Figure]] = {
    "two_tenants": _solve_times,
    "versus_highs": _versus_highs,
    "half_second_slots": _solve_times,
    "more_tenants": _more_tenants,
    "growth": _growth,
    "survivors": _survivors,
}
