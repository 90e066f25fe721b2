"""Records: read while they are written, safe from kills, thinned, kept aside when damaged."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.errors import InputError
from migrator.records import store as records_module
from migrator.records.rows import (
    ActionRecord,
    EventRecord,
    PlanRecord,
    Record,
    RetrainingRecord,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.store import Records, read_records, read_runs

WINDOW = WindowRecord(0, 10.0, "migrator", "auto", plan={"version": 1}, predicted_goodput=9.5)
ROWS: tuple[Record, ...] = (
    WINDOW,
    TenantWindowRecord(0, "vision", received=10, in_time=9, late=1, goodput=8.5, wrong=0.5),
    SecondRecord("vision", 3, received=4, in_time=4, forecast_mean=3.5, forecast_high=6.0),
    UnitRecord("3g@0/1", 10.0, 0, 3, "vision", "inference", "ready", parts_s={"copy_s": 0.1}),
    VersionRecord("vision", 1, 12.0, 0.8, adopted=True, why="not worse"),
    EventRecord(13.0, "worker lost", "w1 died"),
    PlanRecord(0, 10.2, 0, "the window begins", 9.5, 0.2, 0.01, ({"start": 0, "gpcs": 3},)),
    ActionRecord(14.0, "drain", "vision", "page", "done", "vision takes no requests any more"),
    RetrainingRecord(0, "vision", 15.0, "done", 1.0, 0.8, 4.0, 4.5, {"epochs_s": 3.5}),
)


def begun(path: Path, *, seconds_kept_s: int = 3600) -> Records:
    return Records(
        path,
        scenario="quickstart",
        board="A100-40GB",
        driver="emulated",
        policy="migrator",
        seed=7,
        about={"window_s": 20},
        seconds_kept_s=seconds_kept_s,
    )


def put_all(records: Records, rows: tuple[Record, ...]) -> None:
    for row in rows:
        records.put(row)


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with begun(path) as records:
        put_all(records, ROWS)
        records.flush()
        read_back = read_records(path)
    run, *rows = vars(read_back).values()
    assert tuple(row for rows_of_kind in rows for row in rows_of_kind) == ROWS
    assert run == read_back.run
    assert read_back.run.scenario == "quickstart"
    assert read_back.run.about == {"window_s": 20}
    assert read_back.run.ended_s is None
    ended = read_records(path).run.ended_s
    assert ended is not None
    assert ended >= read_back.run.began_s


def test_a_row_written_again_replaces_the_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with begun(path) as records:
        records.put(WINDOW)
        records.put(replace(WINDOW, replans=1))
        records.flush()
        records.put(replace(WINDOW, replans=2, ended_s=30.0))
        records.event("note", "twice")
        records.event("note", "twice")
    read_back = read_records(path)
    assert read_back.windows == (replace(WINDOW, replans=2, ended_s=30.0),)
    assert [event.words for event in read_back.events] == ["twice", "twice"]


def test_runs_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with begun(path) as first:
        assert first.last_window() is None
        put_all(first, ROWS)
    with begun(path) as second:
        assert second.last_window() == 0
        second.put(replace(WINDOW, window=4))
    assert [run.run for run in read_runs(path)] == [first.run, second.run]
    assert read_records(path).windows[0].window == 4
    assert read_records(path, first.run).windows == (WINDOW,)
    with pytest.raises(InputError, match="no run 99; give one of 1, 2"):
        read_records(path, 99)


def test_old_seconds_are_counted_together_and_no_request_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "_THIN_EVERY", 3)
    path = tmp_path / "records.db"
    with begun(path, seconds_kept_s=25) as records:
        for second in range(100):
            for tenant in ("text", "vision"):
                records.put(
                    SecondRecord(tenant, second, received=second, in_time=1, forecast_mean=2.0)
                )
            records.flush()
    seconds = [second for second in read_records(path).seconds if second.tenant == "text"]
    assert sum(second.received for second in seconds) == sum(range(100))
    assert sum(second.span_s for second in seconds) == 100
    assert len(seconds) < 50
    assert {second.span_s for second in seconds if second.second >= 75} == {1}
    assert seconds[0] == SecondRecord("text", 0, 45, 10, 0, 0, 2.0, None, None, 10)
    # a later run thins what the earlier one left
    with begun(path, seconds_kept_s=25) as records:
        records.put(SecondRecord("text", 0))
    earlier = read_records(path, 1).seconds
    assert {record.span_s for record in earlier} == {10}
    assert sum(record.received for record in earlier) == 2 * sum(range(100))


def test_events_do_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "_THIN_EVERY", 1)
    monkeypatch.setattr(records_module, "_EVENTS_KEPT", 10)
    with begun(tmp_path / "records.db") as records:
        for number in range(50):
            records.event("note", str(number))
            records.flush()
    texts = [event.words for event in read_records(tmp_path / "records.db").events]
    assert texts == [str(number) for number in range(40, 50)]


def test_putting_while_another_thread_flushes_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with begun(path) as records, ThreadPoolExecutor(1) as thread:
        flushes = []
        for second in range(2000):
            records.put(SecondRecord("vision", second, received=1))
            if second % 50 == 0:
                flushes.append(thread.submit(records.flush))
        for flush in flushes:
            flush.result()
    assert len(read_records(path).seconds) == 2000


_WRITING = """
import sys
from pathlib import Path
from migrator.records.rows import SecondRecord, WindowRecord
from migrator.records.store import Records

records = Records(
    Path(sys.argv[1]), scenario="s", board="b", driver="d", policy="p", seed=0
)
for second in range(1000000):
    records.put(SecondRecord("vision", second, received=1))
    records.put(WindowRecord(second // 10, 0.0, "p", "f"))
    records.flush()
    print(second, flush=True)
"""


def test_a_killed_daemon_loses_nothing_it_had_flushed_and_readers_never_wait(
    tmp_path: Path,
) -> None:
    path = tmp_path / "records.db"
    command = [sys.executable, "-c", _WRITING, str(path)]
    last = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        for line in daemon.stdout:
            last = int(line)
            if last in (50, 100):
                seconds = read_records(path).seconds
                assert [second.second for second in seconds] == list(range(len(seconds)))
                assert len(seconds) > last
            if last == 120:
                daemon.kill()
    read_back = read_records(path)
    assert len(read_back.seconds) > last
    assert read_back.run.ended_s is None
    with begun(path) as records:
        assert records.damaged is None
        assert records.last_window() == read_back.windows[-1].window


def test_what_could_not_be_written_is_written_once_it_can(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from migrator.core.errors import InputError
from migrator.records.rows import EventRecord
from migrator.records.store import Records

records = Records(Path(sys.argv[1]), scenario="s", board="b", driver="d", policy="p", seed=0)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
for number in range(100):
    records.put(EventRecord(float(number), "note", "word " * 400))
    try:
        records.flush()
    except InputError as error:
        print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
records.close()
"""
    path = tmp_path / "records.db"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("make room") == 1
    assert [event.at_s for event in read_records(path).events] == list(range(100))


@pytest.mark.parametrize("damage", ["empty", "garbage", "half"])
def test_a_damaged_file_is_refused_by_readers_and_kept_aside_by_the_writer(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "records.db"
    with begun(path) as records:
        for second in range(3000):
            records.put(SecondRecord("vision", second))
    whole = path.read_bytes()
    broken = {"empty": b"", "garbage": b"?" * 9000, "half": whole[: len(whole) // 2]}[damage]
    path.write_bytes(broken)
    with pytest.raises(InputError, match="damaged"):
        read_records(path)
    with begun(path) as again:
        assert again.damaged is not None
        assert again.damaged.read_bytes() == broken
        put_all(again, ROWS)
    assert read_records(path).windows == (WINDOW,)


def test_no_file_a_file_of_labels_and_an_unusable_folder_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_records(tmp_path / "records.db")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be used"):
        begun(tmp_path / "file" / "records.db")
    (tmp_path / "notes.txt").write_text("not a database, only words " * 40, encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE things (name)")
    with pytest.raises(InputError, match="this is not a file of records"):
        read_records(tmp_path / "other.db")
    with pytest.raises(InputError, match="is damaged or is not a MIGRator database"):
        read_records(tmp_path / "notes.txt")
