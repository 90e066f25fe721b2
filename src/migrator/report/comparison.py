"""Policies compared over scenarios and seeds: text, page, picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from migrator.core.comparison import (
    ALL_SCENARIOS,
    Row,
    SeedValues,
    over_best_peer,
    reference_policy,
    reference_row,
    relative,
)
from migrator.core.errors import InputError
from migrator.report.html_page import check_figure_path, write_figure
from migrator.report.page import (
    Axis,
    Bars,
    Page,
    Picture,
    Section,
    Series,
    Table,
    anchor_of,
)
from migrator.report.paint import policy_paints
from migrator.report.terminal import (
    COLUMNS,
    NONE,
    capitalised,
    count,
    plural,
    short,
    table_lines,
    wrapped,
)

_Measure = Callable[[Row], SeedValues]
_MEASURES: dict[str, tuple[str, _Measure]] = {
    "goodput share": (
        "answered in time and correctly, over received",
        lambda row: row.goodput_share,
    ),
    "SLO attainment": ("answered in time, over received", lambda row: row.slo_attainment),
    "accuracy": ("correct among those in time", lambda row: row.accuracy),
}
"""What is drawn of every row: its meaning and its value."""
_HEADERS = (
    *("policy", "goodput %", "SLO %", "accuracy %", "lost"),
    *("worst", "Jain", "new", "plan s", "vs peer"),
)
_KEY = (
    "SLO: in time / received; lost: late or dropped, in %; worst: lowest goodput % of a tenant;\n"
    "Jain: index of the tenants' goodput %, 1 if equal; new: instances or shares that were new\n"
    "vs: higher or lower goodput than the best other policy, than the one named; an oracle is no\n"
    "peer, nor are migrator and migrator-replanned of each other"
)


class _Reference:
    """The policy that all others are compared with, seed by seed."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.policy = reference_policy(rows)
        self._rows = rows

    @property
    def interval_words(self) -> str:
        """What an interval is; empty with one seed, which has none."""
        if all(row.seeds == 1 for row in self._rows):
            return ""
        return (
            f"95% confidence interval of the difference from {short(self.policy, 28)} with the "
            "same seeds, in percentage points"
        )

    def half_width(self, row: Row, measure: _Measure) -> float | None:
        """Of the interval of a row's difference from the policy; None without one."""
        reference = reference_row(row, self._rows, self.policy)
        mean = None if reference is None else measure(row).difference_from(measure(reference))
        return None if mean is None else mean.half_width

    def percent(self, row: Row, measure: _Measure, width: str = "\u00a0±\u00a0{:.1f}") -> str:
        """The mean of a measure, with the half width if there is one."""
        mean, half_width = f"{100 * measure(row).mean:.1f}", self.half_width(row, measure)
        return mean if half_width is None else mean + width.format(100 * half_width)


# Text


def comparison_table(rows: Sequence[Row]) -> str:
    """Per scenario the policies, highest goodput first: means over seeds, and the half widths of
    the intervals of their differences from the reference policy."""
    reference = _Reference(rows)
    to, interval = reference.policy, reference.interval_words
    changes = {(gain.scenario, gain.policy): gain.change for gain in relative(rows, to)}
    headers = (*_HEADERS, short(f"vs {to}", 11))
    lines: list[str] = []
    for scenario in dict.fromkeys(row.scenario for row in rows):
        scenario_rows = [row for row in rows if row.scenario == scenario]
        scenario_rows.sort(key=lambda row: -row.goodput_share.mean)
        cells = [
            _text_cells(
                row,
                reference,
                over_best_peer(row, scenario_rows),
                None if row.policy == to else changes.get((scenario, row.policy)),
            )
            for row in scenario_rows
        ]
        lines += [short(f"{scenario} ({_seeds(scenario_rows)})", COLUMNS)]
        lines += table_lines(headers, [cells], text_columns=1, shrinks=0)
        lines.append("")
    return "\n".join([*lines, *wrapped(f"±: {interval}" if interval else "", indent=""), _KEY])


def _seeds(rows: Sequence[Row]) -> str:
    numbers = sorted({row.seeds for row in rows})
    if len(numbers) == 1:
        return plural(numbers[0], "seed")
    return f"{numbers[0]} to {numbers[-1]} seeds"


def _text_cells(
    row: Row, reference: _Reference, peer: float | None, change: float | None
) -> tuple[str, ...]:
    measures = [measure for _, measure in _MEASURES.values()]
    measured = [reference.percent(row, measure, " ±{:4.1f}") for measure in measures]
    if reference.interval_words:
        # room for an interval, so that all means stand below each other
        measured = [cell if "±" in cell else cell + " " * 6 for cell in measured]
    return (
        row.policy,
        *measured,
        f"{100 * (row.late_share.mean + row.dropped_share.mean):.1f}",
        f"{100 * row.worst_share.mean:.1f}",
        f"{row.jain_index.mean:.2f}",
        count(row.reconfigurations.mean),
        f"{row.plan_s.mean:.2g}",
        _signed(peer),
        _signed(change),
    )


def _signed(part: float | None) -> str:
    if part is None:
        return NONE
    return f"{part:+.1%}" if abs(part) < 10 else f"x{part + 1:.0f}"


# Page and picture


def draw_comparison(rows: Sequence[Row], path: Path, notes: Sequence[str] = ()) -> None:
    """Draw `rows` as HTML or PNG; a failure or Ctrl-C leaves no file."""
    check_figure_path(path)
    if not rows:
        raise InputError("--figure: there is nothing to draw; compare at least one policy")

    def picture() -> Picture:
        return Picture("Policies compared", _interval_sentence(rows), _bars(rows))

    write_figure(path, "--figure", lambda: comparison_page(rows, notes), picture)


def comparison_page(rows: Sequence[Row], notes: Sequence[str] = ()) -> Page:
    """The page of at least one row. `notes`: what holds for all of them."""
    scenarios, policies = _names(rows)
    reference = _Reference(rows)
    sections = []
    overall = [row for row in rows if row.scenario == ALL_SCENARIOS]
    if overall:
        sections.append(_section("All scenarios", overall, reference))
    sections.append(Section("By scenario and policy", "measures", (), _bars(rows)))
    for scenario in scenarios:
        scenario_rows = [row for row in rows if row.scenario == scenario]
        sections.append(_section(scenario, scenario_rows, reference))
    lead = f"{', '.join(policies)} on {plural(len(scenarios), 'scenario')}."
    lead += f" {_interval_sentence(rows)}".rstrip()
    lead += "".join(f" {capitalised(note)}." for note in notes)
    return Page("Policies compared", lead, tuple(sections))


def _interval_sentence(rows: Sequence[Row]) -> str:
    interval = _Reference(rows).interval_words
    return f"Error bars and ±: {interval}." if interval else ""


def _names(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    scenarios = list(dict.fromkeys(row.scenario for row in rows if row.scenario != ALL_SCENARIOS))
    return scenarios, list(dict.fromkeys(row.policy for row in rows))


def _section(title: str, rows: Sequence[Row], reference: _Reference) -> Section:
    ranked = sorted(rows, key=lambda row: -row.goodput_share.mean)
    table = _table(ranked, reference)
    return Section(title, f"in-{anchor_of(title)}", (), (table,))


def _table(rows: Sequence[Row], reference: _Reference) -> Table:
    to, interval = reference.policy, reference.interval_words
    gains = {gain.policy: gain.change for gain in relative(rows, to) if gain.policy != to}
    headers = (
        *("policy", "seeds", *(f"{name} (%)" for name in _MEASURES), "late (%)", "dropped (%)"),
        *("worst tenant (%)", "Jain's index"),
        *("reconfig\u00adurations", "planning (s)", "vs best peer", f"vs {to}"),
    )
    cells = tuple(
        (
            row.policy,
            str(row.seeds),
            *(reference.percent(row, measure) for _, measure in _MEASURES.values()),
            reference.percent(row, lambda row: row.late_share),
            reference.percent(row, lambda row: row.dropped_share),
            reference.percent(row, lambda row: row.worst_share),
            f"{row.jain_index.mean:.2f}",
            f"{row.reconfigurations.mean:,.1f}",
            f"{row.plan_s.mean:.3g}",
            _signed(over_best_peer(row, rows)),
            _signed(gains.get(row.policy)),
        )
        for row in rows
    )
    return Table(
        caption=f"Mean over seeds{f'; ±: {interval}' if interval else ''}",
        headers=headers,
        rows=cells,
        numeric=frozenset(range(1, len(headers))),
        highlights=frozenset({(0, 2)}) if len(rows) > 1 else frozenset(),
    )


def _bars(rows: Sequence[Row]) -> tuple[Bars, ...]:
    """Every measure, grouped by scenario; a policy has the same colour everywhere."""
    scenarios, policies = _names(rows)
    if any(row.scenario == ALL_SCENARIOS for row in rows):
        scenarios = [*scenarios, ALL_SCENARIOS]
    rows_by_name = {(row.scenario, row.policy): row for row in rows}
    reference, looks = _Reference(rows), policy_paints(policies)
    charts = []
    for name, (meaning, measure) in _MEASURES.items():
        series = []
        for policy, paint in zip(policies, looks, strict=True):
            drawn = [rows_by_name.get((scenario, policy)) for scenario in scenarios]
            widths = tuple(
                None if row is None else reference.half_width(row, measure) for row in drawn
            )
            series.append(
                Series(
                    policy,
                    tuple(None if row is None else measure(row).mean for row in drawn),
                    half_widths=widths if any(width is not None for width in widths) else None,
                    paint=paint,
                )
            )
        title, y = f"{capitalised(name)}: {meaning}", Axis(name, share=True)
        charts.append(Bars(title, tuple(scenarios), tuple(series), Axis("scenario"), y))
    return tuple(charts)
