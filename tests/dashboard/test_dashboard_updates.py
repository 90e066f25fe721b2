"""Updates: a run as a page begins with it, then exactly what changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.live_records import RATES_RPS, TENANTS, Made, write_run

from migrator.core.errors import InputError
from migrator.dashboard import updates as news_module
from migrator.dashboard.updates import (
    COLUMNS,
    HISTORY_S,
    Marker,
    Update,
    read_news,
    read_run_update,
)
from migrator.records.rows import (
    ActionRecord,
    PlanRecord,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.store import Records, read_records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_run(tmp_path / "records.db", Made(began_s=1000.0))
    return tmp_path / "records.db"


def written(path: Path, **more: Any) -> Records:
    """The writer of another run, as a daemon is one."""
    return Records(path, scenario="s", board="A100-40GB", driver="d", policy="p", seed=0, **more)


def parsed(update: Update) -> dict[str, Any]:
    parsed_json: dict[str, Any] = json.loads(update.text)
    return parsed_json


def seconds(update: dict[str, Any], tenant: str, column: str) -> list[Any]:
    values: list[Any] = update["seconds"][tenant][COLUMNS.index(column)]
    return values


def test_a_page_begins_with_everything(path: Path) -> None:
    update, records = parsed(read_run_update(path, 1, history=True)), read_records(path)
    assert [window["window"] for window in update["windows"]] == [0, 1, 2]
    assert all("plan" not in window for window in update["windows"])
    assert len(update["tenant_windows"]) == 4
    assert len(update["units"]) == len(records.units)
    assert update["run"] == {"run": 1, "ended_s": None, "last_run": 1}
    for name in TENANTS:
        assert seconds(update, name, "second") == list(range(50))
        assert set(seconds(update, name, "received")) == {RATES_RPS[name]}
    assert seconds(update, "photos", "forecast_low")[2:4] == [None, 48.0]


def test_of_a_long_run_a_page_begins_with_the_last_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news_module, "_MOST_WINDOWS", 3)
    records = written(tmp_path / "long.db", began_s=1000.0)
    # photos has learned lately, cameras only at first, which is what serves it still
    records.put(VersionRecord("cameras", 1, 1001.0, 0.8, True, "the first"))
    records.put(VersionRecord("photos", 1, 1002.0, 0.7, True, "the first"))
    for number in range(8):
        records.put(WindowRecord(number, 1010.0 + 20 * number, "p", "f"))
        records.put(TenantWindowRecord(number, "photos", received=number))
        records.event("plan", f"{number}")
    records.put(VersionRecord("photos", 2, 1160.0, 0.9, True, "better"))
    records.flush()
    update = parsed(read_run_update(records.path, 1))
    # the seconds are counted from the first one
    assert [window["window"] for window in update["windows"]] == [0, 5, 6, 7]
    assert [tenant_window["window"] for tenant_window in update["tenant_windows"]] == [5, 6, 7]
    versions = [(version["tenant"], version["number"]) for version in update["versions"]]
    assert versions == [("cameras", 1), ("photos", 2)]
    assert [event["words"] for event in update["events"]] == list("01234567")
    monkeypatch.setattr(news_module, "_MOST_WINDOWS", 8)
    everything = parsed(read_run_update(records.path, 1))
    assert (len(everything["windows"]), len(everything["versions"])) == (8, 3)


def test_every_window_is_shown_with_its_plan(path: Path) -> None:
    planned = parsed(read_run_update(path, 1, history=True))["planned"]
    retrains = {"start": 4, "gpcs": 2, "task": "photos/retraining", "from": 2, "until": 12}
    assert retrains in planned["1"]
    assert set(planned) == {"0", "1", "2"}


def test_news_are_the_rows_written_since_and_nothing_else(path: Path) -> None:
    with written(path) as records:
        records.put(SecondRecord("photos", 0, 5, 4))
        records.put(WindowRecord(0, 10.0, "p", "f"))
        records.flush()
        start = read_run_update(path, records.run)
        assert read_news(path, records.run, start.marker).empty
        records.put(SecondRecord("photos", 0, 5, 5))
        records.put(SecondRecord("cameras", 1, 7, 7, wrong=1.239))
        records.put(WindowRecord(0, 10.0, "p", "f", ended_s=30.0))
        records.put(UnitRecord("3g@0#1", 11.0, 0, 3, "photos", "inference", "ready"))
        records.put(ActionRecord(12.0, "pause", None, "page", "done", "paused"))
        records.event("note", "something")
        records.flush()
        news = read_news(path, records.run, start.marker)
        update = parsed(news)
        assert not news.empty
        assert [window["ended_s"] is None for window in update["windows"]] == [False]
        assert seconds(update, "photos", "in_time") == [5]
        assert seconds(update, "cameras", "wrong") == [1.24]
        assert [action["kind"] for action in update["actions"]] == ["pause"]
        assert [event["words"] for event in update["events"]] == ["something"]
        assert "versions" not in update
        assert read_news(path, records.run, news.marker).empty


def test_a_page_begins_with_the_last_windows_and_never_gets_more_than_an_hour(
    path: Path,
) -> None:
    with written(path) as records:
        for second in range(0, HISTORY_S + 500, 10):
            records.put(SecondRecord("photos", second, 1, 1, span_s=10))
        records.flush()
        for history, length_s in ((True, HISTORY_S), (False, 400)):
            update = parsed(read_run_update(path, records.run, history=history))
            first, *_, last = seconds(update, "photos", "second")
            assert last - first == length_s


def test_of_a_window_all_plans_are_sent_or_none(path: Path) -> None:
    block = {"start": 0, "gpcs": 3, "task": "photos/inference", "from": 0, "until": 200}
    with written(path) as records:
        for window in range(5):
            records.put(WindowRecord(window, 1000.0 + 200 * window, "p", "f"))
            for slot in (0, 100):
                at_s = 1000.0 + 200 * window + slot
                records.put(PlanRecord(window, at_s, slot, "", blocks=({**block, "from": slot},)))
        records.flush()
        planned = parsed(read_run_update(path, records.run))["planned"]
        assert planned == {"3": [block], "4": [block]}
        assert len(parsed(read_run_update(path, records.run, history=True))["planned"]) == 5


def test_what_is_no_marker_and_no_run_is_one_sentence(path: Path) -> None:
    for text in ("", "1.2", "1.2.3.x.5.6.7.8.9", "-1.0.0.0.0.0.0.0.0"):
        with pytest.raises(InputError, match="load the page again"):
            Marker.parse(text)
    marker = read_run_update(path, 1).marker
    assert Marker.parse(str(marker)) == marker
    with pytest.raises(InputError, match="no run 7"):
        read_run_update(path, 7)
