import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.core.errors import GpuError
from migrator.gpu.lock import GpuLock

HOLD = (
    "import sys, time\nfrom pathlib import Path\nfrom migrator.gpu.lock import GpuLock\n"
    "lock = GpuLock(Path(sys.argv[1]), 'GPU-0')\nlock.take()\nprint('held', flush=True)\n"
    "time.sleep(60)\n"
)


def held_elsewhere(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def ended(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_one_process_has_it_and_the_other_is_told_who_until_it_is_killed(tmp_path: Path) -> None:
    process = held_elsewhere(tmp_path)
    lock = GpuLock(tmp_path, "GPU-0")
    try:
        with pytest.raises(
            GpuError, match=rf"GPU-0 is being changed by process {process.pid} \(-c .* since \d\d:"
        ):
            lock.take()
        GpuLock(tmp_path, "GPU-1").take()
    finally:
        ended(process)
    lock.take()
    lock.give_back()


def test_two_locks_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    first, second = GpuLock(tmp_path, "GPU-0"), GpuLock(tmp_path, "GPU-0")
    first.take()
    with pytest.raises(GpuError, match=f"process {os.getpid()} "):
        second.take()
    first.give_back()
    second.take()
    second.give_back()


FORK = HOLD.replace(
    "print('held', flush=True)", "import os\nos.fork() or print(os.getpid(), flush=True)"
)


def test_a_forked_child_that_outlives_its_killed_parent_does_not_keep_it(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FORK, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    child = int(process.stdout.readline())
    lock = GpuLock(tmp_path, "GPU-0")
    try:
        with pytest.raises(GpuError, match=f"process {process.pid} "):
            lock.take()
        process.kill()
        process.wait()
        lock.take()
        lock.give_back()
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_words_nobody_can_read_do_not_matter(tmp_path: Path) -> None:
    first = GpuLock(tmp_path, "GPU-0")
    first.take()
    first.path.write_bytes(b"\xff\xfe nonsense")
    with pytest.raises(GpuError, match="is being changed by another process"):
        GpuLock(tmp_path, "GPU-0").take()
    first.give_back()


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuError, match="the lock cannot be made"):
        GpuLock(tmp_path / "file", "GPU-0").take()
