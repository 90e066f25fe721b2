"""The fake NVML itself: strict as the real one, with the rules of every board, crash-safe."""

import os
import signal
import time
from collections.abc import Callable
from ctypes import byref, c_uint
from pathlib import Path
from typing import Any

import pynvml
import pytest
from support.fake_gpu import mig_driver
from support.fake_nvml import state as rules
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FakeNvml, FaultKind
from support.fake_nvml.state import FakeGpu

from migrator.core.catalogue import Place, boards, placement_sets
from migrator.core.errors import InputError

PLACEMENT = pynvml.c_nvmlGpuInstancePlacement_t
HALF, SEVENTH = 9, 19
"""NVML's ids of 3g.20gb and 1g.5gb on an A100."""
TIMES = 30


def _device() -> Any:
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(0)


def _created(device: Any, profile: int = HALF, start: int = 4, size: int = 4) -> Any:
    placement = PLACEMENT(start, size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile, byref(placement))


def test_the_binding_is_left_as_it_was(tmp_path: Path) -> None:
    before = dict(vars(pynvml))
    with pytest.raises(pynvml.NVMLError_InvalidArgument), installed(tmp_path):
        _created(_device(), profile=77)
    assert dict(vars(pynvml)) == before


def test_nothing_answers_before_it_is_opened(tmp_path: Path) -> None:
    with installed(tmp_path):
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetCount()
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlShutdown()


def test_a_struct_by_value_is_an_error(tmp_path: Path) -> None:
    with installed(tmp_path) as fake:
        device = _device()
        with pytest.raises(TypeError, match=r"a pointer is due.*the real library would crash"):
            pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, HALF, PLACEMENT(4, 4))
        assert fake.instances() == ()


def test_an_array_too_short_is_an_error(tmp_path: Path) -> None:
    with installed(tmp_path):
        device = _device()
        for start in (0, 1):
            _created(device, SEVENTH, start, 1)
        one = (pynvml.c_nvmlGpuInstance_t * 1)()
        with pytest.raises(TypeError, match="memory is corrupted"):
            pynvml.nvmlDeviceGetGpuInstances(device, SEVENTH, one, byref(c_uint()))


def test_a_handle_is_no_number(tmp_path: Path) -> None:
    with installed(tmp_path):
        _device()
        with pytest.raises(TypeError, match="a handle of NVML is due"):
            pynvml.nvmlGpuInstanceGetInfo(7)
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlGpuInstanceGetInfo(_device())


def test_profiles_end_with_an_invalid_argument(tmp_path: Path) -> None:
    with installed(tmp_path):
        device = _device()
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetGpuInstanceProfileInfo(device, 5)
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetGpuInstanceProfileInfo(
                device, pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT
            )


def test_placements_need_room(tmp_path: Path) -> None:
    with installed(tmp_path):
        device, count = _device(), c_uint(3)
        array = (PLACEMENT * 3)()
        with pytest.raises(pynvml.NVMLError_InsufficientSize):
            pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, SEVENTH, array, byref(count))
        assert count.value == 7


@pytest.mark.parametrize(
    ("profile", "start", "size"), [(HALF, 4, 3), (HALF, 2, 4), (77, 0, 1), (SEVENTH, 7, 1)]
)
def test_impossible_placements(tmp_path: Path, profile: int, start: int, size: int) -> None:
    with installed(tmp_path):
        device = _device()
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            _created(device, profile, start, size)


def test_refusals_of_destroying(tmp_path: Path) -> None:
    with installed(tmp_path) as fake:
        made = _created(_device())
        compute = pynvml.nvmlGpuInstanceCreateComputeInstance(made, 2)
        with pytest.raises(pynvml.NVMLError_InsufficientResources):
            pynvml.nvmlGpuInstanceCreateComputeInstance(made, 0)
        with pytest.raises(pynvml.NVMLError_InUse):
            pynvml.nvmlGpuInstanceDestroy(made)
        fake.hold(4, 1)
        with pytest.raises(pynvml.NVMLError_InUse):
            pynvml.nvmlComputeInstanceDestroy(compute)
        fake.release(1)
        pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(made)
        assert fake.instances() == ()


def test_a_handle_dies_with_its_instance(tmp_path: Path) -> None:
    with installed(tmp_path):
        device = _device()
        first = _created(device)
        pynvml.nvmlGpuInstanceDestroy(first)
        second = _created(device)
        assert pynvml.nvmlGpuInstanceGetInfo(second).id == 2
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlGpuInstanceGetInfo(first)


@pytest.mark.parametrize("name", boards())
def test_the_sets_of_instances_are_those_of_the_board(name: str) -> None:
    board = boards()[name]
    plain = [(each, start) for each in board.plain_profiles.values() for start in each.starts]
    empty = frozenset[tuple[int, int]]()
    seen, todo = {empty}, [empty]
    while todo:
        gpu, at = FakeGpu(name, "GPU", True, True), todo.pop()
        for gpcs, start in at:
            rules.add_instance(gpu, board.plain_profiles[gpcs], start)
        for profile, start in plain:
            more = at | {(profile.gpcs, start)}
            if rules.fits(gpu, profile, start) and more not in seen:
                seen.add(more)
                todo.append(more)
    known = {
        frozenset((placement.gpcs, placement.start) for placement in placements)
        for placements in placement_sets(board)
    }
    assert seen - {empty} == known


def test_numbers_are_as_nvidia_gives_them(tmp_path: Path) -> None:
    with mig_driver(tmp_path) as (_, driver):
        numbers = {
            str(place): driver.create(place).number
            for place in (Place(0, "3g.20gb"), Place(4, "2g.10gb"), Place(6, "1g.5gb"))
        }
        assert numbers == {"3g.20gb at 0": 1, "2g.10gb at 4": 5, "1g.5gb at 6": 13}


def test_faults_are_counted(tmp_path: Path) -> None:
    with installed(tmp_path) as fake:
        device = _device()
        fake.fault("insufficient-resources", 2, after=1)
        pynvml.nvmlGpuInstanceDestroy(_created(device))
        for _ in range(2):
            with pytest.raises(pynvml.NVMLError_InsufficientResources):
                _created(device)
        assert fake.faults() == ()
        _created(device)


def test_faults_until_removed(tmp_path: Path) -> None:
    with installed(tmp_path) as fake:
        device = _device()
        fake.fault(FaultKind.NO_PERMISSION, None)
        for _ in range(3):
            with pytest.raises(pynvml.NVMLError_NoPermission):
                _created(device)
        fake.mend()
        _created(device)


def test_slow_and_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with installed(tmp_path) as fake:
        device = _device()
        fake.fault(FaultKind.SLOW, 2, seconds=1.5)
        fake.fault(FaultKind.INSUFFICIENT_RESOURCES)
        with pytest.raises(pynvml.NVMLError_InsufficientResources):
            _created(device)
        _created(device)
        _created(device, SEVENTH, 0, 1)
    assert slept == [1.5, 1.5]


@pytest.mark.parametrize(
    ("gpus", "words"),
    [(["A30-24GB"], "has A100-40GB, not A30-24GB; delete the folder"), (["Z9"], "has A100-40GB")],
)
def test_another_board_in_the_same_folder(tmp_path: Path, gpus: list[str], words: str) -> None:
    FakeNvml(tmp_path)
    with pytest.raises(InputError, match=words):
        FakeNvml(tmp_path, gpus)


def test_a_folder_that_vanished(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path)
    (tmp_path / "state.jsonl").unlink()
    with pytest.raises(InputError, match=r"no fake NVML here; begin one with FakeNvml"):
        fake.instances()


@pytest.mark.parametrize("torn", [b"", b"{", b'{"boot_id": "half'])
def test_a_line_that_was_not_ended_does_not_count(tmp_path: Path, torn: bytes) -> None:
    fake = FakeNvml(tmp_path)
    made = fake.foreign(4, "3g.20gb")
    with (tmp_path / "state.jsonl").open("ab") as file:
        file.write(torn)
    assert FakeNvml(tmp_path).instances() == (made,)
    fake.foreign(0, "4g.20gb")
    assert [instance.place.start for instance in FakeNvml(tmp_path).instances()] == [0, 4]


def test_a_first_line_that_was_not_ended_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "state.jsonl").write_bytes(b'{"boot')
    assert FakeNvml(tmp_path, ["A30-24GB"]).instances() == ()
    assert FakeNvml(tmp_path).store.now().gpus[0].board == "A30-24GB"


def test_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.fake_nvml.state.FULL", 5000)
    fake = FakeNvml(tmp_path)
    for _ in range(30):
        made = fake.foreign(4, "3g.20gb")
        assert FakeNvml(tmp_path).instances() == (made,)
        fake.remove(4)
        assert (tmp_path / "state.jsonl").stat().st_size < 6000
    assert fake.instances() == ()


def test_what_another_process_does_is_seen(tmp_path: Path) -> None:
    with mig_driver(tmp_path) as (_, driver):
        child = _forked(lambda: _foreign(tmp_path))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [instance.place for instance in driver.instances()] == [Place(4, "3g.20gb")]


def test_of_many_processes_one_gets_the_place(tmp_path: Path) -> None:
    FakeNvml(tmp_path)
    children = [_forked(lambda: _taken(tmp_path)) for _ in range(6)]
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    assert codes == [0, 1, 1, 1, 1, 1]
    assert [instance.place for instance in FakeNvml(tmp_path).instances()] == [Place(0, "7g.40gb")]


def test_no_change_of_any_process_is_lost(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path)
    children = [_forked(lambda at=start: _repeated(tmp_path, at)) for start in range(4)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * 4
    assert fake.instances() == ()
    assert fake.store.now().gpus[0].serial == 4 * TIMES * 2


def test_a_kill_at_any_moment_leaves_a_board(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path)
    for more_ms in range(20):
        before = fake.store.now().gpus[0].serial
        child = _forked(lambda: _busy(tmp_path))
        while fake.store.now().gpus[0].serial == before:
            time.sleep(0.001)
        time.sleep(more_ms / 3000)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert [instance.place.start for instance in fake.instances()] in ([], [4])
        with mig_driver(tmp_path) as (_, driver):
            for instance in driver.instances():
                driver.destroy(instance)


def _forked(work: Any) -> int:
    child = os.fork()
    if child == 0:
        code = 3
        try:
            code = work()
        finally:
            os._exit(code)
    return child


def _foreign(folder: Path) -> int:
    FakeNvml(folder).foreign(4, "3g.20gb")
    return 0


def _taken(folder: Path) -> int:
    with installed(folder):
        device = _device()
        try:
            _created(device, 0, 0, 8)
        except pynvml.NVMLError_InsufficientResources:
            return 1
    return 0


def _repeated(folder: Path, start: int) -> int:
    with mig_driver(folder) as (_, driver):
        for _ in range(TIMES):
            driver.destroy(driver.create(Place(start, "1g.5gb")))
    return 0


def _busy(folder: Path) -> int:
    with mig_driver(folder) as (_, driver):
        while True:
            driver.destroy(driver.create(Place(4, "3g.20gb")))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda fake: fake.foreign(3, "3g.20gb"), "no room for 3g.20gb at 3"),
        (lambda fake: fake.foreign(0, "3g.71gb"), "has no MIG profile"),
        (lambda fake: fake.foreign(0, "3g.20gb", 7), "no GPU 7; the fake machine has 1"),
        (lambda fake: fake.hold(3, 1), "no instance starts at 3"),
        (lambda fake: fake.remove(3), "no instance starts at 3"),
    ],
)
def test_mistakes_of_tests_are_refused(
    tmp_path: Path, change: Callable[[FakeNvml], object], error: str
) -> None:
    fake = FakeNvml(tmp_path)
    with pytest.raises(InputError, match=error):
        change(fake)


def test_a_process_holds_an_instance_until_it_is_released(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path)
    fake.foreign(4, "3g.20gb")
    fake.hold(4, 4000000)
    (instance,) = fake.instances()
    assert [holder.pid for holder in instance.holders] == [4000000]
    fake.release(4000000)
    assert fake.instances()[0].holders == ()


def test_a_reboot_removes_instances_and_begins_another_boot(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path)
    fake.foreign(4, "3g.20gb")
    boot = fake.boot_id()
    fake.reboot()
    assert fake.instances() == ()
    assert fake.boot_id() != boot
