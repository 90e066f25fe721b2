"""The report of `migrator report`: one page on what a live run planned, held and gave."""

from __future__ import annotations

from migrator.core.catalogue import Board
from migrator.records.views import LiveRun, LiveWindow, overheads_s
from migrator.report.live_beside import beside_section
from migrator.report.live_charts import (
    MOST_STARTS,
    accuracy_chart,
    arrivals_chart,
    promise_chart,
    seconds_chart,
    shown_seconds,
    starts_chart,
    tenant_fates,
    version_chart,
    window_fates,
)
from migrator.report.live_held import held_chart, planned_chart
from migrator.report.live_tables import (
    accuracies_table,
    events_table,
    plans_table,
    starts_table,
    tenants_table,
    versions_table,
    windows_table,
)
from migrator.report.live_text import moment, percent
from migrator.report.page import Block, Page, Section

MOST_WINDOWS = 12
"""Windows whose slices and seconds are drawn: the last ones."""
_WINDOW_WORDS = (
    "Goodput share and SLO attainment are parts of what was received; accuracy is the correct part "
    "of what was answered in time, as far as labels tell. While reconfiguring: of the late and "
    "dropped, those that came while an instance of theirs was not yet warm. Promised: the goodput "
    "that the window's first plan expected."
)
_HELD_WORDS = (
    "Above what was planned at the window's beginning, below what really was there: full colours "
    "serve, hatched ones retrain, light ones are being warmed, grey belongs to nobody. In the plan "
    "new instances are light for as long as a start took on average."
)
_FORECAST_WORDS = (
    "The forecast is the one the plan in force was made with: its mean dashed, and grey the band "
    "between the 10% and 90% quantiles of its scenarios."
)
_ACCURACY_WORDS = (
    "At a window's begin the accuracy is that of the answers whose labels came in the window "
    "before; inside a window a jump is a retrained model that took over, judged on data held out."
)
_STARTS_WORDS = (
    "A start lasts from the creation of an instance, where it had to be created, until its worker "
    "serves; what is warmed ahead of need costs no request anything. Times count from the first "
    "window, before which the first instances were made."
)


def live_page(run: LiveRun, board: Board, beside: LiveRun | None = None) -> Page:
    """The page of a run; `beside` is another one to hold it against."""
    sections = [_result(run)]
    if beside is not None:
        sections.append(beside_section(run, beside))
    sections += [
        Section("Windows", "windows", (_WINDOW_WORDS,), (windows_table(run), plans_table(run))),
        _held(run, board),
        _requests(run),
        _models(run),
        _starts(run),
        Section("Events", "events", (), _there([events_table(run)])),
    ]
    row = run.records.run
    title = f"MIGRator, live: {row.scenario} under {row.policy}"
    return Page(title, _lead(run), tuple(each for each in sections if each.blocks))


def _lead(run: LiveRun) -> str:
    row = run.records.run
    windows = "1 window" if len(run.windows) == 1 else f"{len(run.windows)} windows"
    end = "not ended" if row.ended_s is None else f"to {moment(row.ended_s, row.began_s)}"
    return (
        f"{row.board}, driver {row.driver}, run {row.run} from {moment(row.began_s)}, {end}: "
        f"{windows} of {run.window_s:g} s in slots of {run.slot_s:g} s, tenants "
        f"{', '.join(run.tenants)}, seed {row.seed}. Goodput counts requests answered in time and "
        "correctly."
    )


def _result(run: LiveRun) -> Section:
    blocks: list[Block | None] = [tenants_table(run), window_fates(run), promise_chart(run)]
    return Section("Result", "result", (_headline(run),), _there(blocks))


def _headline(run: LiveRun) -> str:
    whole = run.whole
    if not whole.received:
        return "No request came in a window that has ended."
    return (
        f"{whole.goodput or 0:,.0f} of {whole.received:,} requests were answered in time and "
        f"correctly, {percent(whole.share)}. {percent(whole.slo_attainment)} were in time, and of "
        f"those {percent(whole.accuracy)} correct. {whole.while_reconfiguring or 0:,} of the late "
        "and dropped ones came while an instance of theirs was not yet warm."
    )


def _drawn(run: LiveRun) -> tuple[LiveWindow, ...]:
    return run.windows[-MOST_WINDOWS:]


def _held(run: LiveRun, board: Board) -> Section:
    overhead_s, blocks = overheads_s(run), list[Block | None]()
    for window in _drawn(run):
        blocks += [planned_chart(run, window, board, overhead_s), held_chart(run, window, board)]
    words = [_HELD_WORDS]
    if len(run.windows) > MOST_WINDOWS:
        words.append(f"The last {MOST_WINDOWS} of {len(run.windows)} windows are drawn.")
    return Section("Planned and held", "slices", tuple(words), _there(blocks))


def _requests(run: LiveRun) -> Section:
    blocks: list[Block | None] = []
    for hue, name in enumerate(run.tenants):
        seconds = shown_seconds(run, name, _drawn(run))
        if len(run.tenants) > 1 and run.windows:
            blocks.append(tenant_fates(run, name))
        blocks += [arrivals_chart(name, hue % 7, seconds), seconds_chart(name, seconds)]
    return Section("Requests", "requests", (_FORECAST_WORDS,), _there(blocks))


def _models(run: LiveRun) -> Section:
    blocks: list[Block | None] = [
        accuracy_chart(run),
        version_chart(run),
        accuracies_table(run),
        versions_table(run),
    ]
    return Section("Models", "models", (_ACCURACY_WORDS,), _there(blocks))


def _starts(run: LiveRun) -> Section:
    words = [_STARTS_WORDS]
    if len(run.starts) > MOST_STARTS:
        words.append(f"The last {MOST_STARTS} of {len(run.starts)} starts are drawn.")
    return Section("Starts", "starts", tuple(words), _there([starts_chart(run), starts_table(run)]))


def _there(blocks: list[Block | None]) -> tuple[Block, ...]:
    return tuple(each for each in blocks if each is not None)
