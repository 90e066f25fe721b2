"""Labels: on the disk when acknowledged, counted once, bounded, never trained on if held out."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.learn.samples import Samples, WindowData
from migrator.live import labels as labels_module
from migrator.live.labels import (
    PRETRAINED,
    ConflictingLabelError,
    LabelCounts,
    LabelLimits,
    Labels,
    lot_of,
    sample_row,
)
from migrator.live.training_data import HELD_OUT_PER_CLASS, remember, window_data


def sample(number: int) -> NDArray[np.uint8]:
    return np.full((3, 2, 2), number % 256, np.uint8)


async def add_some(
    labels: Labels, numbers: range, *, window: int = 0, classes: int = 2, tenant: str = "a"
) -> list[bool]:
    return await asyncio.gather(
        *(
            labels.add(tenant, window, sample(number), number % classes, 0, f"r{number}")
            for number in numbers
        )
    )


def filled(path: Path, *windows: tuple[range, int], **kept: Any) -> None:
    """Labels by window, each given as numbers of samples and a number of classes."""

    async def scene() -> None:
        labels = Labels(path, **kept)
        for window, (numbers, classes) in enumerate(windows):
            await add_some(labels, numbers, window=window, classes=classes)
        await labels.close()

    asyncio.run(scene())


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[Labels]:
    labels = Labels(path, **options)
    yield labels
    asyncio.run(labels.close())


def inputs_of(data: WindowData) -> tuple[set[int], set[int]]:
    """The numbers of what is trained on and of what is held out."""
    trained, judged = data.training.inputs, data.held_out.inputs
    return set(trained[:, 0, 0, 0].tolist()), set(judged[:, 0, 0, 0].tolist())


def test_a_request_counts_once_and_counts_outlive_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "labels.db"

    async def first() -> None:
        labels = Labels(path)
        assert all(await add_some(labels, range(10)))
        assert not any(await add_some(labels, range(10)))
        assert all(await add_some(labels, range(4), tenant="b"))
        assert await labels.add("a", 1, sample(3), 1, None, "later")
        await labels.close()
        with pytest.raises(InputError, match="closed"):
            await labels.add("a", 1, sample(3), 1, None, "too late")

    async def second() -> None:
        labels = Labels(path)
        assert labels.damaged is None
        assert labels.counts("a", 0) == LabelCounts(labelled=10, judged=10, wrong=5)
        assert labels.counts("a", 1) == LabelCounts(labelled=1)
        assert labels.counts("b", 0) == LabelCounts(4, 4, 2)
        assert labels.counts("b", 7) == LabelCounts()
        assert not await labels.add("a", 3, sample(0), 0, 0, "r0")
        await labels.close()

    asyncio.run(first())
    asyncio.run(second())


async def test_another_label_of_a_request_is_refused_and_the_first_kept(tmp_path: Path) -> None:
    path = tmp_path / "labels.db"
    labels = Labels(path)
    assert await labels.add("a", 0, sample(1), 1, None, "r")
    assert not await labels.add("a", 1, sample(1), 1, 0, "r")
    with pytest.raises(ConflictingLabelError, match="r of a already has label 1, which is kept"):
        await labels.add("a", 0, sample(1), 0, None, "r")
    with pytest.raises(ConflictingLabelError, match="r of a already names other inputs"):
        await labels.add("a", 0, sample(2), 1, None, "r")
    assert await labels.add("b", 0, sample(2), 0, None, "r")
    assert await labels.bring([sample_row("a", 0, sample(1), 0, None, "r")]) == 0
    assert labels.counts("a", 0).labelled == 1
    await labels.close()
    data = window_data(path, "a", 0, held_out=0.0)
    assert data.new.labels.tolist() == [1]


async def test_arrays_come_back_as_they_were_and_others_are_refused(tmp_path: Path) -> None:
    labels = Labels(tmp_path / "labels.db")
    arrays = (
        np.arange(-4, 4, dtype=np.int32),
        np.arange(4, dtype=">i4"),
        np.arange(12, dtype=np.int64).reshape(3, 4).T,
        np.array(7, dtype=np.uint8),
    )
    for number, inputs in enumerate(arrays):
        await labels.add(f"t{number}", 0, inputs, 1, None, "r1")
    words, none = np.array(["words"]), np.zeros((0, 3), np.uint8)
    refused: tuple[tuple[NDArray[Any], int, str], ...] = (
        *((words, 0, "r"), (none, 0, "r"), (sample(1), -1, "r"), (sample(1), 2**40, "r")),
        *((sample(1), 0, ""), (sample(1), 0, "r" * 201), (sample(1), 0, "\ud800")),
    )
    for inputs, label, request_id in refused:
        with pytest.raises(InputError, match="label of a"):
            await labels.add("a", 0, inputs, label, None, request_id)
    assert await labels.add("a", 0, sample(1), 0, None, "fine")
    await labels.close()
    for number, inputs in enumerate(arrays):
        new = window_data(tmp_path / "labels.db", f"t{number}", 0, held_out=0.0).new
        np.testing.assert_array_equal(new.inputs, inputs[None])
        assert new.inputs.dtype == inputs.dtype.newbyteorder("=")


def test_held_out_samples_are_never_trained_on_in_any_window(tmp_path: Path) -> None:
    path = tmp_path / "labels.db"
    filled(path, (range(80), 2), (range(80, 160), 4), (range(160, 240), 4))
    trained: set[int] = set()
    judged: set[int] = set()
    for window in range(3):
        now_trained, now_judged = inputs_of(window_data(path, "a", window, replay=40))
        trained, judged = trained | now_trained, judged | now_judged
    assert not trained & judged
    assert 0.1 < len(judged) / 240 < 0.3
    assert {number for number in range(240) if lot_of(sample(number).tobytes()) < 0.2} >= judged


def test_a_window_brings_new_classes_and_replays_old_ones(tmp_path: Path) -> None:
    path = tmp_path / "labels.db"
    filled(path, (range(100), 2), (range(100, 200), 4))
    data = window_data(path, "a", 1, replay=10, held_out=0.2, seed=3)
    assert data.new_classes == {2, 3}
    assert set(data.new.inputs[:, 0, 0, 0]) <= set(range(100, 200))
    assert np.bincount(data.replay.labels).tolist() == [10, 10]
    assert set(data.held_out.labels) == {0, 1, 2, 3}
    again = window_data(path, "a", 1, replay=10, held_out=0.2, seed=3)
    np.testing.assert_array_equal(again.replay.inputs, data.replay.inputs)
    other = window_data(path, "a", 1, replay=10, held_out=0.2, seed=4)
    assert inputs_of(other) != inputs_of(data)
    # a model that was not retrained in between has both windows to learn
    both = window_data(path, "a", 1, since=0)
    assert len(both.new) > 140
    assert len(both.replay) == 0
    assert both.new_classes == {0, 1, 2, 3}
    # and what comes later is not known yet
    assert window_data(path, "a", 0).new_classes == {0, 1}


def test_old_classes_do_not_outvote_the_window(tmp_path: Path) -> None:
    path = tmp_path / "labels.db"
    filled(path, (range(3000), 1), (range(3000, 3600), 2), limits=LabelLimits(per_class=2000))
    held_out = window_data(path, "a", 1).held_out
    counts = np.bincount(held_out.labels)
    assert counts.max() <= HELD_OUT_PER_CLASS
    assert counts[0] <= counts[1]


async def test_the_odd_sample_of_another_shape_is_left_out(tmp_path: Path) -> None:
    labels = Labels(tmp_path / "labels.db")
    await add_some(labels, range(20))
    await labels.add("a", 0, np.zeros((3, 9, 9), np.uint8), 0, None, "odd")
    await labels.close()
    data = window_data(tmp_path / "labels.db", "a", 0, held_out=0.0)
    assert data.new.inputs.shape == (20, 3, 2, 2)


def test_learned_windows_shrink_and_rare_classes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels_module, "_TRIM_EVERY", 50)
    path = tmp_path / "labels.db"
    windows = [(range(window * 100, window * 100 + 100), 2) for window in range(6)]
    windows[0] = (range(100), 3)  # its third class never comes again
    filled(path, *windows, limits=LabelLimits(2, 15), learned_before=lambda _: 5)
    everything = window_data(path, "a", 9, since=-1, held_out=0.0)
    counts = np.bincount(everything.new.labels)
    assert counts[2] == 15
    assert counts[0] <= 15 + 150
    assert set(everything.new.arrives.tolist()) >= {0, 4, 5}
    with opened(path) as labels:
        assert labels.kept("a", 0, 6) == len(everything.new)
        assert labels.kept("a", 5, 6) == 100
        assert sum(labels.counts("a", window).labelled for window in range(6)) == 600


def test_learned_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels_module, "_TRIM_EVERY", 20)
    path = tmp_path / "labels.db"
    windows = ((range(1000), 2), (range(1000, 1040), 2), (range(1040, 1080), 2))
    filled(path, *windows, limits=LabelLimits(learned_bytes=1200), learned_before=lambda _: 1)
    kept = window_data(path, "a", 0, held_out=0.0).new
    assert 80 <= len(kept) <= 100
    assert len(window_data(path, "a", 2, since=1, held_out=0.0).new) == 80


def test_a_limited_training_uses_the_newest_samples_of_every_class(tmp_path: Path) -> None:
    path = tmp_path / "labels.db"
    filled(path, (range(40), 2), (range(40, 160), 3), (range(160, 164), 4))
    every = window_data(path, "a", 2, since=1, replay=30, held_out=0.0)
    assert (len(every.new), len(every.replay)) == (124, 40)
    some = window_data(path, "a", 2, since=1, replay=30, held_out=0.0, most=31)
    assert np.bincount(some.training.labels).tolist() == [10, 10, 10, 1]
    assert set(some.new.inputs[:, 0, 0, 0]) >= {163, 162, 161, 160, 159, 158, 157}
    assert min(some.new.inputs[:, 0, 0, 0]) > 120
    # classes that do not come any more are replayed all the same
    later = window_data(path, "a", 2, since=2, replay=30, held_out=0.0, most=31)
    assert len(later.new) == 4
    assert np.bincount(later.training.labels).min() >= 1
    assert len(later.training) == 31


_ADDING = """
import asyncio, sys
from pathlib import Path
import numpy as np
from migrator.live.labels import Labels

async def main():
    labels = Labels(Path(sys.argv[1]))
    async def one(number):
        inputs = np.full((3, 16, 16), number % 256, np.uint8)
        await labels.add("a", 0, inputs, 0, None, f"r{number}")
        print(f"r{number}", flush=True)
    for first in range(0, 100000, 20):
        await asyncio.gather(*map(one, range(first, first + 20)))

asyncio.run(main())
"""


async def test_a_killed_daemon_loses_no_acknowledged_label(tmp_path: Path) -> None:
    path = tmp_path / "labels.db"
    command = [sys.executable, "-c", _ADDING, str(path)]
    acknowledged: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        for line in daemon.stdout:
            acknowledged.append(line.strip())
            if len(acknowledged) == 211:
                daemon.kill()
    assert len(acknowledged) >= 211
    labels = Labels(path)
    assert labels.damaged is None
    for request in acknowledged:
        inputs = np.full((3, 16, 16), int(request[1:]) % 256, np.uint8)
        assert not await labels.add("a", 0, inputs, 0, None, request)
    assert labels.counts("a", 0).labelled >= len(acknowledged)
    await labels.close()


@pytest.mark.parametrize("damage", ["half", "other"])
def test_a_damaged_file_is_kept_aside_and_readers_say_so(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "labels.db"
    filled(path, (range(400), 2))
    whole = path.read_bytes()
    other = whole[:68] + b"\0\0\0\1" + whole[72:]
    broken = {
        "half": whole[: len(whole) // 2],
        "other": other,
    }
    path.write_bytes(broken[damage])
    with pytest.raises(InputError, match="damaged"):
        window_data(path, "a", 0)

    async def scene() -> None:
        labels = Labels(path)
        assert labels.damaged is not None
        assert labels.damaged.read_bytes() == broken[damage]
        assert labels.counts("a", 0) == LabelCounts()
        assert await labels.add("a", 0, sample(1), 0, None, "r1")
        await labels.close()

    asyncio.run(scene())
    assert len(window_data(path, "a", 0, held_out=0.0).new) == 1


def test_samples_before_the_first_window_are_new_and_those_of_pre_training_are_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "labels.db"

    async def upload() -> None:
        labels = Labels(path)
        await add_some(labels, range(30), window=PRETRAINED)
        await labels.close()

    asyncio.run(upload())
    pictures = np.stack([sample(number) for number in range(100, 110)])
    samples_of_7 = Samples(pictures, np.full(10, 7), np.zeros(10, np.int64))
    nothing = Samples(pictures[:0], samples_of_7.labels[:0], samples_of_7.arrives[:0])
    remember(path, "a", WindowData(samples_of_7, nothing, nothing, nothing, frozenset()), 10, 0)
    with opened(path) as labels:
        assert labels.kept("a", PRETRAINED, 0) == 30
    data = window_data(path, "a", PRETRAINED, held_out=0.0)
    assert len(data.new) == 30
    assert set(data.replay.labels.tolist()) == {7}
    assert 7 not in data.new_classes
