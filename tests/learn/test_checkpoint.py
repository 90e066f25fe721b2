"""Checkpoints: the last two are kept, the last good one is used, half of one is none."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from support.tiny_model import Tiny

from migrator.learn.checkpoint import Checkpoints, CheckpointSchedule

MODEL = Tiny.build(4, 0)


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def written(tmp_path: Path, warnings: list[str]) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path / "run", warnings.append)
    for number in range(4):
        checkpoints.write(number, MODEL, {"curve": [number / 10]})
    return checkpoints


def test_the_last_two_are_kept(written: Checkpoints) -> None:
    assert sorted(path.name for path in written.folder.iterdir()) == [
        "000002.json",
        "000002.weights",
        "000003.json",
        "000003.weights",
    ]


def test_the_newest_comes_back(written: Checkpoints, warnings: list[str]) -> None:
    checkpoint = written.newest_good()
    assert checkpoint is not None
    assert (checkpoint.number, checkpoint.about) == (3, {"curve": [0.3]})
    Tiny.build(4, 1).load(checkpoint.weights)
    assert warnings == []


@pytest.mark.parametrize("name", ["000003.weights", "000003.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_one_is_passed_over_with_a_warning(
    written: Checkpoints, warnings: list[str], name: str, damage: str
) -> None:
    path = written.folder / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        changed = bytes([content[-3] ^ 1])
        path.write_bytes(
            content[: len(content) // 2]
            if damage == "cut"
            else content[:-3] + changed + content[-2:]
        )
    checkpoint = written.newest_good()
    assert checkpoint is not None
    assert checkpoint.number == 2
    # without its JSON a checkpoint was never finished, and nothing is lost
    silent = name.endswith("json") and damage == "gone"
    assert [("damaged" in warning) for warning in warnings] == ([] if silent else [True])


def test_where_none_is_whole_there_is_none(written: Checkpoints, warnings: list[str]) -> None:
    for path in written.folder.glob("*.weights"):
        path.write_bytes(b"")
    assert written.has_any()
    assert written.newest_good() is None
    # said once, however often it is looked for
    assert written.newest_good() is None
    assert [warning.rpartition("; ")[2] for warning in warnings] == [
        "trying the one before it",
        "there is none before it",
    ]


def test_weights_are_written_and_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that writes its file whole by itself writes into the checkpoint's own."""
    written_names: list[str] = []
    synced: list[bool] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real(descriptor)

    class Noting(Tiny):
        def save(self, path: Path, *, training: bool = False) -> None:
            super().save(path, training=training)
            written_names.extend(file.name for file in path.parent.iterdir())

    monkeypatch.setattr(os, "fsync", fsync)
    Checkpoints(tmp_path, print).write(0, Noting.build(4, 0), {})
    assert written_names == [f".000000.weights.{os.getpid()}.unfinished"]
    # weights and JSON, and after each the folder that names it
    assert synced == [False, True, False, True]


def test_a_write_that_is_cut_off_leaves_the_one_before(
    written: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(_self: object, path: Path, *, training: bool = False) -> None:
        path.write_bytes(b"half" * (1 + training))
        raise KeyboardInterrupt

    monkeypatch.setattr(Tiny, "save", cut_off)
    with pytest.raises(KeyboardInterrupt):
        written.write(4, MODEL, {})
    checkpoint = written.newest_good()
    assert checkpoint is not None
    assert checkpoint.number == 3
    assert not list(written.folder.glob(".*"))


def test_a_slow_one_waits_until_it_is_a_small_part_of_the_training() -> None:
    now_s = [0.0]
    schedule = CheckpointSchedule(lambda: now_s[0])

    def write(seconds: float) -> None:
        schedule.time(lambda: now_s.__setitem__(0, now_s[0] + seconds))

    assert schedule.due
    write(0.05)
    assert schedule.due
    write(2.0)
    now_s[0] += 39.0
    assert not schedule.due
    now_s[0] += 2.0
    assert schedule.due
