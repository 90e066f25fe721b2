"""Charts and tables of workloads by policy, for the experiments that share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from migrator.core.comparison import Estimate, Row
from migrator.report.page import Axis, Bars, Series, Table, paint_of
from migrator.reproduce.evaluation import Measured
from migrator.reproduce.words import cell

Measure = Callable[[Row], Estimate]

MEASURES: dict[str, Measure] = {
    "goodput": lambda row: row.goodput_share,
    "SLO attainment": lambda row: row.slo_attainment,
    "accuracy": lambda row: row.accuracy,
}


def grouped_bars(title: str, measured: Measured, policies: Sequence[str], measure: str) -> Bars:
    """A bar per policy for every workload and their average."""
    of = MEASURES[measure]
    lines = measured.lines(policies)
    series = []
    for at, policy in enumerate(policies):
        found = [of(rows[at]) for _, rows in lines]
        widths = tuple(each.half_width for each in found)
        series.append(
            Series(
                policy,
                tuple(each.mean for each in found),
                widths if any(each is not None for each in widths) else None,
                paint_of(at),
            )
        )
    return Bars(
        title=title,
        categories=tuple(name for name, _ in lines),
        series=tuple(series),
        x=Axis("workload"),
        y=Axis(measure, share=True),
    )


def shares_table(
    caption: str,
    measured: Measured,
    policies: Sequence[str],
    measure: str,
    *,
    bound: str | None = None,
    folded: bool = False,
) -> Table:
    """A row per workload, a column per policy; the best that is not the `bound` stands out."""
    of = MEASURES[measure]
    lines = measured.lines(policies)
    rivals = [at for at, policy in enumerate(policies) if policy != bound]
    best = [max(rivals, key=lambda at: of(rows[at]).mean) for _, rows in lines]
    return Table(
        caption=caption,
        headers=("workload", *policies),
        rows=tuple((name, *(cell(of(row)) for row in rows)) for name, rows in lines),
        numeric=frozenset(range(1, len(policies) + 1)),
        highlights=frozenset((at, column + 1) for at, column in enumerate(best)),
        folded=folded,
    )
