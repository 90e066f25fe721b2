"""The page of a live run: what it says of records that the real writer wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from support.html import ParsedPage
from support.live_records import PARTS_S, RETRAINED_S, WINDOW_S, Made, write_run

from migrator.core.catalogue import board
from migrator.records.rows import RetrainingRecord
from migrator.records.runs import RecordedRun, recorded_run
from migrator.records.store import read_records
from migrator.report.html_page import page_text
from migrator.report.page import Bars, Block, Lines, Page, Slices, Table
from migrator.report.paint import Paint
from migrator.report.run_charts import MOST_STARTS, starts_chart
from migrator.report.run_json import windows_json
from migrator.report.run_page import run_page
from migrator.report.windows_text import window_text

A100 = board("A100-40GB")
B = TypeVar("B", Bars, Lines, Slices, Table)


def made(folder: Path, how: Made | None = None) -> RecordedRun:
    path = folder / "quick" / "records.db"
    return recorded_run(read_records(path, write_run(path, how or Made(began_s=1000.0))))


@pytest.fixture
def run(tmp_path: Path) -> RecordedRun:
    return made(tmp_path)


def blocks(page: Page, kind: type[B], title: str = "") -> list[B]:
    blocks: list[Block] = [block for section in page.sections for block in section.blocks]
    named = [block for block in blocks if isinstance(block, kind)]
    return [
        block
        for block in named
        if (block.caption if isinstance(block, Table) else block.title).startswith(title)
    ]


def test_the_page_has_all_its_parts(run: RecordedRun) -> None:
    page = run_page([run], A100)
    assert [section.title for section in page.sections] == [
        *("Result", "Windows", "Planned and held", "Requests", "Models", "Starts", "Events")
    ]
    assert page.title == "MIGRator, live: quick under migrator"
    # 2,661 good of 3,600 in the two windows that ended
    assert page.sections[0].paragraphs[0].startswith("2,661 of 3,600 requests")
    assert page.lead.endswith(
        "Labels of answers tell which ones are correct; with too few it is unknown."
    )


def test_planned_and_held_stand_one_above_the_other(run: RecordedRun) -> None:
    titles = [block.title for block in blocks(run_page([run], A100), Slices)]
    assert titles == [
        "Windows 0 to 2: held",
        *("Window 0: planned at its beginning", "Window 0: held"),
        *("Window 1: planned at its beginning", "Window 1: held"),
        *("Window 2: planned at its beginning", "Window 2: held"),
    ]


def test_what_was_held_is_drawn_state_by_state(run: RecordedRun) -> None:
    (held,) = blocks(run_page([run], A100), Slices, "Window 1: held")
    slabs = {(slab.name, slab.from_s, slab.until_s) for slab in held.slabs if slab.start == 4}
    assert slabs == {
        ("cameras", 0.0, 2.0),
        ("cameras, draining", 2.0, 3.0),
        ("photos, retraining", 3.0, RETRAINED_S),
        ("cameras, warming", RETRAINED_S, RETRAINED_S + 1),
        ("cameras", RETRAINED_S + 1, WINDOW_S),
    }
    looks = dict(held.keys)
    hue = run.tenants.index("photos")
    assert looks["photos, retraining"] == Paint(hue, hatched=True)
    assert looks["photos"] == Paint(hue)
    assert looks["cameras, warming"].light
    assert looks["unused"] == Paint(None, light=True)
    assert {slab.width for slab in held.slabs if slab.start == 0} == {4}
    first = blocks(run_page([run], A100), Slices, "Window 0: held")[0]
    assert "being created" in dict(first.keys)


def test_the_plan_is_drawn_with_its_retraining_and_cold_starts(run: RecordedRun) -> None:
    (plan,) = blocks(run_page([run], A100), Slices, "Window 1: planned")
    spans = {slab.name: (slab.from_s, slab.until_s) for slab in plan.slabs if slab.start == 4}
    assert spans["photos, retraining"] == (2.0, 12.0)
    # cameras is cold for as long as a start took: created and warmed
    cold_s = PARTS_S["create_s"] + PARTS_S["warm_s"]
    assert list(spans["cameras, cold start"]) == pytest.approx([12.0, 12.0 + cold_s])


def test_a_policy_without_plans_has_only_what_was_held(tmp_path: Path) -> None:
    page = run_page([made(tmp_path, Made(policy="static-4-3", began_s=0.0))], A100)
    assert all(block.title.endswith("held") for block in blocks(page, Slices))
    assert not blocks(page, Bars, "Goodput predicted")


def test_requests_are_split_by_what_became_of_them(run: RecordedRun) -> None:
    (bars,) = blocks(run_page([run], A100), Bars, "What became of the requests")
    parts = {row.name: row.values for row in bars.series}
    assert parts["late"] == (20.0, 20.0, 20.0)
    assert parts["failed"] == (6.0, 6.0, 0.0)
    sums = [sum(value or 0.0 for value in column) for column in zip(*parts.values(), strict=True)]
    assert sums == [pytest.approx(1800), pytest.approx(1800), pytest.approx(900)]


def test_arrivals_stand_against_the_forecast_and_its_band(run: RecordedRun) -> None:
    page = run_page([run], A100)
    (lines,) = blocks(page, Lines, "photos: arrivals")
    values = {row.name: row.values for row in lines.series}
    assert values["received"] == (60.0,) * 50
    assert values["forecast, mean"][2:4] == (None, 60.0)
    assert values["forecast, 10% quantile"][3] == 48.0
    assert values["forecast, 90% quantile"][3] == 72.0
    (areas,) = blocks(page, Lines, "photos: in time")
    assert [row.values[0] for row in areas.series] == [57.0, 2.0, 1.0]


def test_accuracy_jumps_where_a_model_takes_over(run: RecordedRun) -> None:
    page = run_page([run], A100)
    (accuracy,) = blocks(page, Lines, "Accuracy")
    assert accuracy.at == (0.0, WINDOW_S, WINDOW_S + RETRAINED_S)
    values = {row.name: row.values for row in accuracy.series}
    # the model that was refused changes nothing
    assert values == {"photos": (0.7, 0.7, 0.9), "cameras": (0.7, 0.7, 0.7)}
    (table,) = blocks(page, Table, "Retrained")
    assert [row[1:5] for row in table.rows] == [
        ("photos", "2", "90.0%", "adopted"),
        ("cameras", "-", "50.0%", "refused"),
    ]


def test_every_start_is_shown_by_its_parts(run: RecordedRun) -> None:
    page = run_page([run], A100)
    (bars,) = blocks(page, Bars, "Duration of every start")
    assert bars.categories == (
        "before: cameras 2g@4",
        "before: photos 3g@0",
        "32.0 s: cameras 2g@4",
    )
    whole = [sum(row.values[0] or 0.0 for row in bars.series)]
    assert whole == [pytest.approx(0.9)]
    parts = {row.name: row.values[0] for row in bars.series}
    assert parts["instance created"] == 0.4
    assert parts["everything else"] == pytest.approx(0.12)
    many = replace(run.records, units=run.records.units * MOST_STARTS)
    drawn = starts_chart(recorded_run(many))
    assert drawn is not None
    assert len(drawn.categories) == MOST_STARTS


def test_retrainings_are_shown_planned_and_taken_with_their_parts(tmp_path: Path) -> None:
    parts_s = {"start_s": 1.0, "data_s": 0.5, "epochs_s": 7.0, "hand_over_s": 0.25}
    retraining = RetrainingRecord(1, "photos", 1032.0, "done", 1.0, 0.9, 6.0, 7.5, parts_s)
    waiting = RetrainingRecord(1, "cameras", 1030.0, "waiting", 0.0)
    run = made(tmp_path, Made(began_s=1000.0, more=(retraining, waiting)))
    page = run_page([run], A100)
    (parts,) = blocks(page, Table, "Retrainings and their parts")
    assert parts.rows[0][:7] == ("1", "photos", "6.0", "7.5", "1.25", "1.00", "0.50")
    window = windows_json(run)["windows"][1]
    assert window["tenants"]["photos"]["retraining"] == {
        "configuration": "",
        "planned_s": 6.0,
        "taken_s": 7.5,
        "parts_s": parts_s,
    }
    assert "retraining" not in window["tenants"]["cameras"]
    text = window_text(run, run.windows[1], A100)
    assert "photos: 7.5 s, planned 6.0 s (start 1.00, data 0.50" in text


def test_two_runs_stand_side_by_side(tmp_path: Path) -> None:
    ours = made(tmp_path, Made(began_s=0.0))
    theirs = made(tmp_path, Made(policy="static-4-3", late=40, ended_windows=1, began_s=0.0))
    page = run_page([ours], A100, [theirs])
    (share,) = blocks(page, Bars, "Goodput share by window")
    assert [row.name for row in share.series] == ["migrator", "static-4-3"]
    # 1,800 received, 46 dropped or failed and 5 * 40 late of each tenant, 70% correct
    first, second = share.series[1].values
    assert first == pytest.approx(0.7 * (1800 - 46 - 400) / 1800)
    assert second is None
    totals = blocks(page, Table, "All windows that have ended")[0]
    assert [row[:3] for row in totals.rows] == [
        ("migrator", "2", "3,600"),
        ("static-4-3", "1", "1,800"),
    ]
    assert totals.highlights == {(0, 4)}
    assert share.categories == ("0", "1")


def test_a_run_of_nothing_is_still_a_page(run: RecordedRun) -> None:
    nothing = replace(
        run.records, windows=(), tenant_windows=(), seconds=(), units=(), versions=(), events=()
    )
    empty = recorded_run(nothing)
    for page in (run_page([empty], A100), run_page([empty], A100, [empty])):
        assert "No request arrived" in page.sections[0].paragraphs[0]
        assert ParsedPage(page_text(page, "")).tags["h1"] == 1


def unjudged(run: RecordedRun) -> RecordedRun:
    """The run with answers of which it is unknown whether they are correct."""
    windows = tuple(
        replace(
            window,
            tenants={
                name: replace(tally, goodput=0.0, wrong=0.0, unjudged=round(tally.in_time))
                for name, tally in window.tenants.items()
            },
        )
        for window in run.windows
    )
    return replace(run, windows=windows)


def test_several_runs_of_unknown_goodput_have_no_empty_charts(run: RecordedRun) -> None:
    judged = run_page([run, run], A100).sections[0].blocks
    unknown = run_page([unjudged(run), unjudged(run)], A100).sections[0].blocks
    assert {type(block) for block in judged} == {Bars, Table}
    assert [type(block) for block in unknown] == [Table]
