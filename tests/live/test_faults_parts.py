"""Faults of single parts of the daemon, each with the part itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from migrator.io.processes import Process, is_running
from migrator.live import gpu_thread
from migrator.live import labels as kept

PICTURE = np.zeros((3, 2, 2), np.uint8)


async def test_labels_are_stored_again_after_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> bool:
        raise RuntimeError("out of luck")

    labels = kept.Labels(tmp_path / "labels.db")
    with monkeypatch.context() as patched:
        patched.setattr(kept, "insert", failing)
        with pytest.raises(kept.NotKeptError, match="RuntimeError: out of luck"):
            await labels.add("a", 0, PICTURE, 1, None, "one")
    assert await labels.add("a", 0, PICTURE, 1, None, "one")
    await labels.close()


@contextmanager
def _sleeping(mark: str) -> Iterator[int]:
    program = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(program, env={**os.environ, gpu_thread.MARK: mark}) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_only_what_a_dead_daemon_of_the_folder_left_is_ended(tmp_path: Path) -> None:
    me = Process.of(os.getpid())
    dead = subprocess.Popen([sys.executable, "-c", ""])
    gone = f"{dead.pid} {Process.of(dead.pid).began}"
    dead.wait()
    with (
        _sleeping(f"{me.pid} {me.began} {tmp_path}") as of_the_living,
        _sleeping(f"{gone} {tmp_path / 'other'}") as of_another_folder,
        _sleeping("nonsense") as of_no_daemon,
        _sleeping(f"{gone} {tmp_path}") as left,
    ):
        killed = gpu_thread.kill_orphans(tmp_path)
        assert [process.pid for process in killed] == [left]
        gpu_thread.wait_until_gone(killed)
        assert not is_running(left)
        assert all(map(is_running, (of_the_living, of_another_folder, of_no_daemon)))
