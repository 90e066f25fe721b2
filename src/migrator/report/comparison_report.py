"""The page of `migrator compare`: policies side by side, in all and per scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from migrator.core.comparison import ALL_SCENARIOS, Estimate, Row, over_best_peer, relative
from migrator.report.page import (
    Axis,
    Bars,
    Block,
    HeatMap,
    Page,
    Section,
    Series,
    Table,
    anchor_of,
    paint_of,
)
from migrator.report.run_words import lead_paragraphs

MEASURES: dict[str, Callable[[Row], Estimate]] = {
    "goodput share": lambda row: row.goodput_share,
    "SLO attainment": lambda row: row.slo_attainment,
    "accuracy": lambda row: row.accuracy,
}
"""What is drawn of every row."""
_MEANINGS = {
    "goodput share": "answered in time and correctly, over received",
    "SLO attainment": "answered in time, over received",
    "accuracy": "correct among those in time",
}
_MOST_BARS = 60
"""More scenarios times policies than that are a heat map."""
_INTERVALS = "Error bars and ± are 95% confidence intervals over seeds."


def comparison_page(
    rows: Sequence[Row], title: str = "Policies compared", to: str = "migrator"
) -> Page:
    """The page of at least one row."""
    scenarios, policies = names_of(rows)
    sections = []
    overall = [row for row in rows if row.scenario == ALL_SCENARIOS]
    if overall:
        sections.append(_section("All scenarios", overall, to))
    sections.append(_measures_section(rows, scenarios, policies))
    for scenario in scenarios:
        sections.append(_section(scenario, [row for row in rows if row.scenario == scenario], to))
    return Page(title, _lead(scenarios, policies), tuple(sections))


def names_of(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Scenarios (but not all of them together) and policies, in order of appearance."""
    scenarios = list(dict.fromkeys(row.scenario for row in rows if row.scenario != ALL_SCENARIOS))
    return scenarios, list(dict.fromkeys(row.policy for row in rows))


def _lead(scenarios: Sequence[str], policies: Sequence[str]) -> str:
    counted = "1 scenario" if len(scenarios) == 1 else f"{len(scenarios)} scenarios"
    return f"{', '.join(policies)} on {counted}. {_INTERVALS}"


def _section(title: str, rows: Sequence[Row], to: str) -> Section:
    """A scenario's policies, highest goodput first."""
    ranked = sorted(rows, key=lambda row: -row.goodput_share.mean)
    blocks = (_ranking(ranked), _table(ranked, to))
    return Section(title, f"in-{anchor_of(title)}", lead_paragraphs(rows), blocks)


def _ranking(rows: Sequence[Row]) -> Bars:
    series = _series("goodput share", rows, MEASURES["goodput share"])
    return Bars(
        title="Goodput share, mean over seeds",
        categories=tuple(row.policy for row in rows),
        series=(series,),
        x=Axis("policy"),
        y=Axis("goodput over received", share=True),
        horizontal=True,
    )


def _series(name: str, rows: Sequence[Row | None], measure: Callable[[Row], Estimate]) -> Series:
    found = [None if row is None else measure(row) for row in rows]
    widths = tuple(None if each is None else each.half_width for each in found)
    return Series(
        name,
        tuple(None if each is None else each.mean for each in found),
        half_widths=widths if any(each is not None for each in widths) else None,
    )


def _table(rows: Sequence[Row], to: str) -> Table:
    gains = {each.policy: each.change for each in relative(rows, to) if each.policy != to}
    headers = (
        *("policy", "seeds", *(f"{name} (%)" for name in MEASURES), "late (%)", "dropped (%)"),
        *("reconfig\u00adurations", "planning (s)", "vs best peer", f"vs {to}"),
    )
    cells = tuple(
        (
            row.policy,
            str(row.seeds),
            *(_percent(measure(row)) for measure in MEASURES.values()),
            _percent(row.late_share),
            _percent(row.dropped_share),
            f"{row.reconfigurations.mean:,.1f}",
            f"{row.plan_s.mean:.3g}",
            _signed(over_best_peer(row, rows)),
            _signed(gains.get(row.policy)),
        )
        for row in rows
    )
    return Table(
        caption="Mean over seeds",
        headers=headers,
        rows=cells,
        numeric=frozenset(range(1, len(headers))),
        highlights=frozenset({(0, 2)}) if len(rows) > 1 else frozenset(),
    )


def _percent(estimate: Estimate) -> str:
    width = "" if estimate.half_width is None else f"\u00a0±\u00a0{100 * estimate.half_width:.1f}"
    return f"{100 * estimate.mean:.1f}{width}"


def _signed(part: float | None) -> str:
    return "-" if part is None else f"{part:+.1%}"


def _measures_section(
    rows: Sequence[Row], scenarios: Sequence[str], policies: Sequence[str]
) -> Section:
    found = {(row.scenario, row.policy): row for row in rows}
    crowded = len(scenarios) * len(policies) > _MOST_BARS
    blocks: list[Block] = []
    for name, measure in MEASURES.items():
        # Grouped by scenario, a policy has the same colour everywhere.
        series = tuple(
            _series(policy, [found.get((scenario, policy)) for scenario in scenarios], measure)
            for policy in policies
        )
        title = f"{name[0].upper()}{name[1:]}: {_MEANINGS[name]}"
        y = Axis(name, share=True)
        blocks.append(
            _heat_map(title, scenarios, series, y)
            if crowded
            else Bars(title, tuple(scenarios), _painted(series), Axis("scenario"), y)
        )
    return Section("By scenario and policy", "measures", (), tuple(blocks))


def _painted(series: Sequence[Series]) -> tuple[Series, ...]:
    return tuple(
        Series(each.name, each.values, each.half_widths, paint_of(index))
        for index, each in enumerate(series)
    )


def _heat_map(title: str, scenarios: Sequence[str], policies: Sequence[Series], z: Axis) -> HeatMap:
    return HeatMap(
        title=title,
        columns=tuple(each.name for each in policies),
        rows=tuple(scenarios),
        values=tuple(zip(*(each.values for each in policies), strict=True)),
        x=Axis("policy"),
        y=Axis("scenario"),
        z=z,
    )
