"""Batches in a file: written, appended, bounded, read."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.core.batch import Batch, BatchKind, place_name
from migrator.core.errors import InputError
from migrator.core.problem import Instance, Kind, Share, Task
from migrator.records import batches
from migrator.records.batches import BatchFile, read_batches

BATCH = Batch("a", "1g@0", BatchKind.LENT, 4, 7, 0.5, 1.0, 1.25, 1.5, 2.0, 2.25, 3)
LATER = Batch("a", "1g@0", BatchKind.LENT, 4, 7, 100.5, 101.0, 101.25, 101.5, 102.0, 102.25, 3)


def test_batches_are_read_as_they_were_written_at_unix_time(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    for _ in range(2):  # the second run appends
        file = BatchFile(path, 100.0)
        file.put(BATCH)
        file.close()
    assert list(read_batches(path)) == [LATER, LATER]
    with path.open("a", encoding="utf-8") as unfinished:
        unfinished.write("a,1g@0,lent,4")
    assert list(read_batches(path)) == [LATER, LATER]


def test_a_file_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_ROWS", 3)
    file = BatchFile(tmp_path / "b.csv", 0.0)
    for _ in range(5):
        file.put(BATCH)
        file.flush()
    file.close()
    assert len(list(read_batches(tmp_path / "b.csv"))) == 3


def test_a_full_disk_ends_the_recording_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "b.csv").symlink_to("/dev/full")
    file = BatchFile(tmp_path / "b.csv", 0.0)
    file.put(BATCH)
    file.close()
    assert "no more batches are recorded: " in caplog.text


def test_another_file_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_text("name,value\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no batches"):
        BatchFile(path, 0.0)
    assert path.read_text(encoding="utf-8") == "name,value\n"
    with pytest.raises(InputError, match=r"must end in \.csv"):
        BatchFile(tmp_path / "b.db", 0.0)


def test_shares_of_one_size_have_different_names() -> None:
    task = Task("a", Kind.INFERENCE)
    assert place_name(Instance(2, 1, task)) == place_name(Instance(2, 1)) == "1g@2"
    assert len({place_name(Share(number, 30.0, task)) for number in range(3)}) == 3
