import os
import signal
from pathlib import Path

import pytest
from support.children import child

from migrator.core.errors import GpuError
from migrator.gpu import partitioner
from migrator.gpu.drivers.virtual_board import EmulatedDriver
from migrator.gpu.partitioner import GpuLock

HOLD = (
    "import sys, time\nfrom pathlib import Path\nfrom migrator.gpu.partitioner import GpuLock\n"
    "lock = GpuLock(Path(sys.argv[1]), 'GPU-0')\nlock.acquire()\nprint('held', flush=True)\n"
    "time.sleep(60)\n"
)


OTHER_USER = 65534


def outcome_as(user: int) -> str:
    """What comes of taking the lock as that user."""
    reader, writer = os.pipe()
    forked = os.fork()
    if forked == 0:
        os.setuid(user)
        try:
            GpuLock(Path(), "GPU-0").acquire()
            os.write(writer, b"taken")
        except BaseException as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.waitpid(forked, 0)
    os.close(writer)
    with os.fdopen(reader) as file:
        return file.read()


def test_one_process_holds_it_and_is_named_until_it_is_killed(tmp_path: Path) -> None:
    lock = GpuLock(tmp_path, "GPU-0")
    assert lock.holder() is None
    assert not lock.path.exists()
    with child("-c", HOLD, tmp_path) as (process, _):
        assert f"process {process.pid} (python" in str(lock.holder())
        with pytest.raises(
            GpuError, match=rf"GPU-0 is being changed by process {process.pid} \(python\S* -c "
        ):
            lock.acquire()
        GpuLock(tmp_path, "GPU-1").acquire()
    lock.acquire()
    lock.release()


def test_two_locks_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    first, second = GpuLock(tmp_path, "GPU-0"), GpuLock(tmp_path, "GPU-0")
    first.acquire()
    with pytest.raises(GpuError, match=f"process {os.getpid()} "):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


FORK = HOLD.replace(
    "print('held', flush=True)", "import os\nos.fork() or print(os.getpid(), flush=True)"
)


def test_a_forked_child_that_outlives_its_killed_parent_does_not_keep_it(tmp_path: Path) -> None:
    lock = GpuLock(tmp_path, "GPU-0")
    with child("-c", FORK, tmp_path) as (process, forked):
        try:
            with pytest.raises(GpuError, match=f"process {process.pid} "):
                lock.acquire()
            process.kill()
            process.wait()
            lock.acquire()
            lock.release()
        finally:
            os.kill(int(forked), signal.SIGKILL)


def test_without_the_kernels_list_the_holder_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = GpuLock(tmp_path, "GPU-0")
    first.acquire()
    monkeypatch.setattr("migrator.io.processes.PROC", tmp_path)
    assert first.holder() is None
    with pytest.raises(GpuError, match="by another process;"):
        GpuLock(tmp_path, "GPU-0").acquire()
    first.release()


@pytest.fixture
def shared_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a GPU and a folder for the locks of all users."""
    place, device = tmp_path / "run-lock", tmp_path / "nvidiactl"
    place.mkdir()
    device.touch()
    monkeypatch.setattr(partitioner, "MACHINE_WIDE", (tmp_path / "missing", place))
    monkeypatch.setattr(partitioner, "NVIDIA_DEVICE", device)
    return place


def test_a_real_gpu_has_one_lock_for_all_state_folders(shared_place: Path, tmp_path: Path) -> None:
    lock, other = GpuLock(tmp_path / "one", "GPU-0"), GpuLock(tmp_path / "other", "GPU-0")
    lock.acquire()
    with pytest.raises(GpuError, match="is being changed by"):
        other.acquire()
    lock.release()
    assert lock.path.parent == shared_place


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_only_its_owner_can_write_the_lock_and_all_users_can_take_it(
    shared_place: Path, tmp_path: Path, mask: int
) -> None:
    before = os.umask(mask)
    try:
        shared, own = GpuLock(tmp_path, "GPU-0"), GpuLock(tmp_path, "GPU-1", machine_wide=False)
        shared.acquire()
        own.acquire()
    finally:
        os.umask(before)
    assert shared.path.parent == shared_place
    assert shared.path.stat().st_mode & 0o777 == 0o644
    assert own.path.stat().st_mode & 0o777 == 0o644 & ~mask
    shared.release()
    own.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("first", "second"), [(0, OTHER_USER), (OTHER_USER, 0), (OTHER_USER, OTHER_USER + 1)]
)
def test_users_share_the_lock_of_a_gpu_and_see_its_holder(
    shared_place: Path, monkeypatch: pytest.MonkeyPatch, first: int, second: int
) -> None:
    shared_place.chmod(0o1777)
    monkeypatch.chdir(shared_place)  # other users cannot reach it by its path
    monkeypatch.setattr(partitioner, "MACHINE_WIDE", (Path(),))
    monkeypatch.setattr(partitioner, "NVIDIA_DEVICE", Path())
    assert outcome_as(first) == "taken"
    assert outcome_as(second) == "taken"
    own = GpuLock(Path(), "GPU-0")
    own.acquire()
    for user in (first, second):
        assert f"is being changed by process {os.getpid()} " in outcome_as(user)
    own.release()


@pytest.mark.usefixtures("shared_place")
def test_emulated_gpus_have_their_own(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        gpu = EmulatedDriver(tmp_path / name).gpu()
        GpuLock.of(gpu, tmp_path / name).acquire()


def test_where_the_common_folder_cannot_be_written_the_state_folder_has_it(
    shared_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: path != shared_place)
    monkeypatch.setattr(partitioner, "MACHINE_WIDE", (shared_place,))
    assert GpuLock(tmp_path, "GPU-0").path == tmp_path / "gpu-GPU-0.lock"


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuError, match="the lock cannot be made"):
        GpuLock(tmp_path / "file", "GPU-0").acquire()
