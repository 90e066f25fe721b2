"""Columns of rows, what they come to, and how that is written in Markdown."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.measure import Row

Lines = list[str]


def numbers(rows: Iterable[Row], key: str) -> list[float]:
    """A column, without the rows that have no such number."""
    values = (row.get(key) for row in rows)
    return [float(value) for value in values if isinstance(value, int | float)]


def at(rows: Iterable[Row], key: str, value: object) -> list[Row]:
    """The rows that have this value there."""
    return [row for row in rows if row.get(key) == value]


def table(head: list[str], body: list[list[str]]) -> Lines:
    """A Markdown table."""
    return [_cells(head), "|---" * len(head) + "|", *(_cells(row) for row in body)]


def _cells(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def share_proven(rows: list[Row]) -> float:
    """How many of the plans are certified as optimal."""
    gaps = numbers(rows, "gap")
    return gaps.count(0.0) / len(gaps)


def disturbance(rows: list[Row]) -> str:
    """Whether something else had the processor: wall against processor time."""
    wall, cpu = sum(numbers(rows, "wall_s")), sum(numbers(rows, "cpu_s"))
    return f"Processor time is {percent(cpu / wall, 0)} of wall time over all plans and checks."


def goal(met: bool, title: str) -> str:
    return f"{title}: {'met' if met else '**missed**'}"


def median(values: list[float]) -> float:
    return float(np.median(values))


def quantile(values: list[float], percentile: float) -> float:
    return float(np.percentile(values, percentile))


def seconds(value: float) -> str:
    """As many digits as a timing of this size is worth."""
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"


def percent(share: float, digits: int) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f}%"


def times(ratio: float) -> str:
    return f"{ratio:,.0f}"
