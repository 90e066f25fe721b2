"""The report page of runs, simulated or live: one run, or several side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from migrator.core.catalogue import Board
from migrator.core.outcome import Tally
from migrator.core.scenario import LabelsAt
from migrator.records.runs import RecordedRun, RecordedWindow
from migrator.report.page import (
    Axis,
    Bars,
    Block,
    Lines,
    Page,
    Section,
    Series,
    Slices,
    Table,
    anchor_of,
    present,
)
from migrator.report.paint import HUES, Paint, policy_paints
from migrator.report.run_charts import (
    MOST_STARTS,
    TALLY_HEADERS,
    accuracy_chart,
    arrivals_chart,
    events_table,
    plans_table,
    prediction_chart,
    retrainings_table,
    seconds_chart,
    seconds_of,
    starts_chart,
    tally_cells,
    tenants_table,
    versions_table,
    window_outcomes,
    windows_table,
)
from migrator.report.slices import held_chart, joined, planned_chart
from migrator.report.terminal import capitalised, moment, percent, plural

MOST_WINDOWS = 12
"""Windows whose slices and seconds are drawn: the last ones."""
_MOST_EVENTS = 12
"""More events are folded."""
_MOST_BARS = 60
"""If there are more windows times runs, they are drawn as lines."""
_SHARE = Axis("goodput over received", share=True)
_WINDOW_WORDS = (
    "Goodput share and SLO attainment are parts of what was received; accuracy is the correct part "
    "of what was answered in time, as far as labels tell. While reconfiguring: of the late and "
    "dropped, those that arrived while an instance of theirs was not yet warm. Unanswered: waiting "
    "at the end, less those that waited at the start. Predicted: the goodput that the window's "
    "first plan expected."
)
_COLOUR_WORDS = (
    "Full colours serve, hatched ones retrain, light ones are cold or being warmed, grey belongs "
    "to no tenant."
)
_SLICES_WORDS = (
    f"{_COLOUR_WORDS} In plans, new instances are light for as long as a start took on average."
)
_HELD_WORDS = "Above the plan made at the beginning of the window, below what was really held."
_FORECAST_WORDS = (
    "The forecast is the one the plan in force was made with: its mean dashed, and in grey the "
    "band between the 10% and 90% quantiles of its scenarios if it has several."
)
_ACCURACY_WORDS = (
    "At the beginning of a window the accuracy is that of the answers whose labels arrived in the "
    "window before; a jump inside a window is a retrained model that took over, evaluated on "
    "held-out data."
)
_RETRAININGS_WORDS = (
    "Planned and taken durations of retrainings are without the start of their process, which "
    "plans count as the overhead of a new instance."
)
_STARTS_WORDS = (
    "A start lasts from the creation of an instance, if it had to be created, until its worker "
    "serves; what is warmed ahead of need delays no request. Times count from the first window, "
    "before which the first instances were created."
)
_Key = TypeVar("_Key", int, str)


def run_page(runs: Sequence[RecordedRun], board: Board, beside: Sequence[RecordedRun] = ()) -> Page:
    """The page of at least one run, all on `board`; those `beside` are only compared with."""
    names = _names((*runs, *beside))
    sections = [_result((*runs, *beside), names, board)]
    for at, run in enumerate(runs):
        several = len(runs) > 1
        title = f"{names[at]}: " if several else ""
        anchor = f"run-{at}-{anchor_of(names[at])}-" if several else ""
        is_compared = several or bool(beside)
        sections += _run_sections(run, board, title, anchor, is_compared=is_compared)
    shown = tuple(section for section in sections if section.blocks or section.anchor == "result")
    return Page(_title(runs), _lead(runs[0]), shown)


def _title(runs: Sequence[RecordedRun]) -> str:
    scenarios = list(dict.fromkeys(run.scenario for run in runs))
    title = scenarios[0] if len(scenarios) == 1 else f"{len(scenarios)} scenarios"
    if len(runs) == 1:
        title += f" under {runs[0].policy}"
    kind = "simulated" if runs[0].is_simulated else "live"
    return f"MIGRator, {kind}: {title}"


def _lead(run: RecordedRun) -> str:
    row = run.records.run
    what = f"{row.board}, driver {row.driver}"
    if not run.is_simulated:
        end = "not ended" if row.ended_s is None else f"to {moment(row.ended_s, row.began_s)}"
        what += f", run {row.run} from {moment(row.began_s)}, {end}"
    forecaster = f", forecaster {run.forecaster}" if run.forecaster else ""
    return (
        f"{what}: {plural(len(run.windows), 'window')} of {run.window_s:g} s in slots of "
        f"{run.slot_s:g} s, tenants {', '.join(run.tenants)}{forecaster}, seed {row.seed}. "
        f"Goodput counts requests answered in time and correctly.{_labels(run)}"
    )


def _labels(run: RecordedRun) -> str:
    """Which labels the accuracies rest on."""
    if not run.is_simulated:
        return " Labels of answers tell which ones are correct; with too few it is unknown."
    labels_at = run.records.run.about.get("labels")
    return f" {capitalised(LabelsAt(labels_at).words)}." if labels_at in tuple(LabelsAt) else ""


def _names(runs: Sequence[RecordedRun]) -> list[str]:
    """The policy, and whatever else distinguishes a run from the others."""
    names = [run.policy for run in runs]
    for facts in (
        [run.scenario for run in runs],
        [f"seed {run.seed}" for run in runs],
        [f"run {run.records.run.run}" for run in runs],
        [moment(run.records.run.began_s) for run in runs],
    ):
        if len(set(names)) < len(names) and len(set(facts)) > 1:
            names = [f"{name}, {fact}" for name, fact in zip(names, facts, strict=True)]
    return names


# The result


def _result(runs: Sequence[RecordedRun], names: Sequence[str], board: Board) -> Section:
    if len(runs) == 1:
        run = runs[0]
        first = present(_allocation(run, board), tenants_table(run), window_outcomes(run))
        rest = present(prediction_chart(run))
        more = "Predicted against measured"
        paragraphs = (_headline(run), _COLOUR_WORDS)
        return Section("Result", "result", paragraphs, (*first, *rest), len(first), more)
    best = max(range(len(runs)), key=lambda at: runs[at].tally.known_share or 0.0)
    sentences = (f"{names[best]}: {_headline(runs[best])}",)
    blocks = (_ranking(runs, names), _totals(runs, names, best), *_comparison(runs, names))
    return Section("Result", "result", sentences, tuple(filter(_has_values, blocks)))


def _has_values(block: Block) -> bool:
    """Whether a chart shows anything: goodput may be unknown in all windows of all runs."""
    if not isinstance(block, Bars | Lines):
        return True
    return any(value is not None for series in block.series for value in series.values)


def _headline(run: RecordedRun) -> str:
    tally = run.tally
    if not tally.received:
        return "No request arrived in a window that has ended."
    cold = (
        f"{tally.while_reconfiguring:,} of the late and dropped ones arrived while an instance of "
        "theirs was not yet warm."
    )
    if tally.unjudged:
        return (
            f"{percent(tally.slo_attainment)} of {tally.received:,} requests were answered in "
            f"time. How many correctly is unknown: too few answers are labelled. {cold}"
            f"{_preferences(run)}"
        )
    return (
        f"{tally.goodput:,.0f} of {tally.received:,} requests were answered in time and "
        f"correctly, {percent(tally.goodput_share)}. {percent(tally.slo_attainment)} were in "
        f"time, and of those {percent(tally.accuracy)} correct. {cold}{_fairness(run)}"
        f"{_preferences(run)}"
    )


def _fairness(run: RecordedRun) -> str:
    """A sentence on how even the tenants are; nothing for one tenant or before all is judged."""
    if len(run.totals) < 2 or run.tally.unjudged:
        return ""
    return f" {capitalised(run.fairness.words)}."


def _preferences(run: RecordedRun) -> str:
    """Sentences on weighted goodput and on floors; nothing without weights and floors."""
    return "".join(f" {capitalised(words)}." for words in run.preferences.words(run.totals))


def _ranking(runs: Sequence[RecordedRun], names: Sequence[str]) -> Bars:
    shares = [run.tally.known_share for run in runs]
    order = sorted(range(len(runs)), key=lambda at: -(shares[at] or 0.0))
    values = tuple(shares[at] for at in order)
    return Bars(
        title="Goodput share",
        categories=tuple(names[at] for at in order),
        series=(Series("goodput share", values),),
        x=Axis("run"),
        y=_SHARE,
        horizontal=True,
    )


def _totals(runs: Sequence[RecordedRun], names: Sequence[str], best: int) -> Table:
    headers = ("run", "windows", *TALLY_HEADERS, "new instances", "planning (s)")
    rows = tuple(
        (
            name,
            str(len(run.ended)),
            *tally_cells(run.tally),
            f"{run.reconfigurations:,}",
            f"{run.plan_s:.3g}",
        )
        for run, name in zip(runs, names, strict=True)
    )
    numeric, marked = frozenset(range(1, len(headers))), frozenset({(best, 4)})
    if len({run.tally.known_share for run in runs}) == 1:
        marked = frozenset()
    return Table("All windows that have ended", headers, rows, numeric, marked)


def _comparison(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[Block]:
    """Goodput share by window and by tenant; windows count from the first of each run."""
    longest = max(len(run.ended) for run in runs)
    tenants = list(dict.fromkeys(name for run in runs for name in run.totals))
    windows = [dict(enumerate(window.tally for window in run.ended)) for run in runs]
    looks = list(zip(names, policy_paints([run.policy for run in runs]), strict=True))
    if longest > 1:
        yield _by_window("Goodput share by window", windows, looks, longest)
    if len(tenants) > 1:
        series = _series([run.totals for run in runs], looks, tenants)
        title = "Goodput share by tenant"
        yield Bars(title, tuple(tenants), series, Axis("tenant"), _SHARE)


def _by_window(
    title: str,
    windows: Sequence[Mapping[int, Tally]],
    looks: Sequence[tuple[str, Paint]],
    longest: int,
) -> Bars | Lines:
    series = _series(windows, looks, range(longest))
    x = Axis("window of its run")
    if longest * len(windows) > _MOST_BARS:
        return Lines(title, tuple(map(float, range(longest))), series, x, _SHARE)
    return Bars(title, tuple(map(str, range(longest))), series, x, _SHARE)


def _series(
    tallies: Sequence[Mapping[_Key, Tally]],
    looks: Sequence[tuple[str, Paint]],
    keys: Sequence[_Key],
) -> tuple[Series, ...]:
    """A series per run, whose names and looks are given; None where it received nothing."""

    def value(tally: Tally | None) -> float | None:
        return tally.known_share if tally is not None and tally.received else None

    return tuple(
        Series(name, tuple(value(own_tallies.get(key)) for key in keys), paint=paint)
        for own_tallies, (name, paint) in zip(tallies, looks, strict=True)
    )


# One run


def _run_sections(
    run: RecordedRun, board: Board, title: str, anchor: str, *, is_compared: bool
) -> Iterator[Section]:
    def section(
        name: str,
        address: str,
        paragraphs: Sequence[str],
        blocks: Iterable[Block | None],
        folded: Iterable[Block | None] = (),
        more: str = "",
    ) -> Section:
        shown, rest = present(*blocks), present(*folded)
        where = (f"{title}{name}", f"{anchor}{address}")
        return Section(*where, tuple(paragraphs), (*shown, *rest), len(shown), more)

    drawn = run.windows[-MOST_WINDOWS:]
    # beside other runs, the result section compares and leaves these out
    charts = (window_outcomes(run), prediction_chart(run))
    compared = (tenants_table(run), *charts) if is_compared else ()
    tables = (windows_table(run), plans_table(run)) if run.windows else ()
    yield section(
        "Windows", "windows", (_WINDOW_WORDS,), compared, tables, "Tables of windows and plans"
    )
    paragraphs = [_HELD_WORDS, _SLICES_WORDS]
    if len(drawn) < len(run.windows):
        paragraphs.append(f"The last {len(drawn)} of {len(run.windows)} windows are drawn.")
    lead = [_allocation(run, board)] if is_compared else []
    slices = _slices(run, drawn, board)
    yield section("Planned and held", "slices", paragraphs, lead, slices, "Window by window")
    arrivals, outcomes = [], []
    for hue, name in enumerate(run.tenants):
        seconds = seconds_of(run, name, drawn)
        arrivals.append(arrivals_chart(name, hue % HUES, seconds))
        outcomes.append(seconds_chart(name, seconds))
    paragraphs = [_FORECAST_WORDS]
    yield section("Requests", "requests", paragraphs, arrivals, outcomes, "Outcomes by tenant")
    retrainings = retrainings_table(run)
    paragraphs = [_ACCURACY_WORDS]
    if retrainings is not None:
        paragraphs.append(_RETRAININGS_WORDS)
    shown = (accuracy_chart(run), retrainings)
    yield section("Models", "models", paragraphs, shown, [versions_table(run)], "Versions")
    paragraphs = [_STARTS_WORDS]
    if len(run.starts) > MOST_STARTS:
        paragraphs.append(f"The last {MOST_STARTS} of {len(run.starts)} starts are drawn.")
    yield section("Starts", "starts", paragraphs, [starts_chart(run)])
    events = events_table(run)
    is_long = events is not None and len(events.rows) > _MOST_EVENTS
    many = f"{len(events.rows):,} events" if events is not None else ""
    yield section("Events", "events", (), [] if is_long else [events], [events][:is_long], many)


def _allocation(run: RecordedRun, board: Board) -> Slices | None:
    drawn = run.windows[-MOST_WINDOWS:]
    if not drawn:
        return None
    charts = [
        (round(window.row.began_s - drawn[0].row.began_s, 1), held_chart(run, window, board))
        for window in drawn
    ]
    first, last = drawn[0].number, drawn[-1].number
    which = f"Window {first}" if first == last else f"Windows {first} to {last}"
    return joined(f"{which}: held", charts)


def _slices(
    run: RecordedRun, drawn: Sequence[RecordedWindow], board: Board
) -> Iterator[Block | None]:
    overheads_s = run.overheads_s
    for window in drawn:
        yield planned_chart(run, window, board, overheads_s)
        yield held_chart(run, window, board)
