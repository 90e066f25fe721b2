"""The fake NVML: as strict as the real library, with the rules of every board, and crash-safe."""

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

PLACEMENT = pynvml.c_nvmlGpuInstancePlacement_t
HALF, SEVENTH = 9, 19
"""NVML's ids of 3g.20gb and 1g.5gb on an A100."""


def opened_device() -> Any:
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(0)


def created(device: Any, profile: int = HALF, start: int = 4, size: int = 4) -> Any:
    placement = PLACEMENT(start, size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile, byref(placement))


def test_the_binding_is_left_as_it_was(tmp_path: Path) -> None:
    before = dict(vars(pynvml))
    with pytest.raises(pynvml.NVMLError_InvalidArgument), installed(tmp_path):
        created(opened_device(), profile=77)
    assert dict(vars(pynvml)) == before


def short_array(device: Any) -> None:
    for start in (0, 1):
        created(device, SEVENTH, start, 1)
    pynvml.nvmlDeviceGetGpuInstances(
        device, SEVENTH, (pynvml.c_nvmlGpuInstance_t * 1)(), byref(c_uint())
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda device: pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(
                device, HALF, PLACEMENT(4, 4)
            ),
            "a pointer is due.*the real library would crash",
        ),
        (short_array, "memory is corrupted"),
        (lambda _: pynvml.nvmlGpuInstanceGetInfo(7), "a handle of NVML is due"),
    ],
)
def test_what_would_crash_the_real_library_is_an_error(
    tmp_path: Path, call: Callable[[Any], object], message: str
) -> None:
    with installed(tmp_path):
        device = opened_device()
        with pytest.raises(TypeError, match=message):
            call(device)


@pytest.mark.parametrize(
    ("profile", "start", "size"), [(HALF, 4, 3), (HALF, 2, 4), (77, 0, 1), (SEVENTH, 7, 1)]
)
def test_impossible_placements(tmp_path: Path, profile: int, start: int, size: int) -> None:
    with installed(tmp_path):
        device = opened_device()
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            created(device, profile, start, size)


def test_an_instance_is_destroyed_after_its_compute_instance_and_its_handle_with_it(
    tmp_path: Path,
) -> None:
    with installed(tmp_path) as fake:
        device = opened_device()
        instance = created(device)
        compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
        with pytest.raises(pynvml.NVMLError_InsufficientResources):
            pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
        with pytest.raises(pynvml.NVMLError_InUse):
            pynvml.nvmlGpuInstanceDestroy(instance)
        fake.hold(4, 1)
        with pytest.raises(pynvml.NVMLError_InUse):
            pynvml.nvmlComputeInstanceDestroy(compute)
        fake.release(1)
        pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(instance)
        assert fake.instances() == ()
        later = created(device)
        assert pynvml.nvmlGpuInstanceGetInfo(later).id == 2
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlGpuInstanceGetInfo(instance)


@pytest.mark.parametrize("name", boards())
def test_the_sets_of_instances_are_those_of_the_board(name: str) -> None:
    board = boards()[name]
    plain = [(profile, s) for profile in board.plain_profiles.values() for s in profile.starts]
    empty = frozenset[tuple[int, int]]()
    reached, waiting = {empty}, [empty]
    while waiting:
        gpu, instances = FakeGpu(name, "GPU", True, True), waiting.pop()
        for gpcs, start in instances:
            rules.add_instance(gpu, board.plain_profiles[gpcs], start)
        for profile, start in plain:
            more = instances | {(profile.gpcs, start)}
            if rules.fits(gpu, profile, start) and more not in reached:
                reached.add(more)
                waiting.append(more)
    catalogued = {
        frozenset((placement.gpcs, placement.start) for placement in placements)
        for placements in placement_sets(board)
    }
    assert reached - {empty} == catalogued


def test_numbers_are_as_nvidia_gives_them(tmp_path: Path) -> None:
    with mig_driver(tmp_path) as (_, driver):
        places = (Place(0, "3g.20gb"), Place(4, "2g.10gb"), Place(6, "1g.5gb"))
        assert [driver.create(place).number for place in places] == [1, 5, 13]


def test_a_fault_happens_as_often_as_asked_for(tmp_path: Path) -> None:
    with installed(tmp_path) as fake:
        device = opened_device()
        fake.fault(FaultKind.INSUFFICIENT_RESOURCES, 2, after=1)
        pynvml.nvmlGpuInstanceDestroy(created(device))
        for _ in range(2):
            with pytest.raises(pynvml.NVMLError_InsufficientResources):
                created(device)
        assert fake.faults() == ()
        created(device)


@pytest.mark.parametrize("torn", [b"{", b'{"boot_id": "half'])
def test_a_line_that_was_not_ended_does_not_count(tmp_path: Path, torn: bytes) -> None:
    fake = FakeNvml(tmp_path)
    instance = fake.foreign(4, "3g.20gb")
    with (tmp_path / "state.jsonl").open("ab") as file:
        file.write(torn)
    assert FakeNvml(tmp_path).instances() == (instance,)
    fake.foreign(0, "4g.20gb")
    assert [other.place.start for other in FakeNvml(tmp_path).instances()] == [0, 4]


def forked(work: Callable[..., object], *arguments: object) -> int:
    child = os.fork()
    if child == 0:
        code = 3
        try:
            work(*arguments)
            code = 0
        finally:
            os._exit(code)
    return child


def changed(folder: Path, start: int, times: int) -> None:
    with mig_driver(folder) as (_, driver):
        for _ in range(times):
            driver.destroy(driver.create(Place(start, "1g.5gb")))


def test_no_change_of_any_process_is_lost(tmp_path: Path) -> None:
    fake, times = FakeNvml(tmp_path), 30
    children = [forked(changed, tmp_path, start, times) for start in range(4)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert fake.instances() == ()
    assert fake.store.now().gpus[0].serial == 4 * times * 2


def test_a_kill_at_any_moment_leaves_a_board(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path)
    for more_ms in range(20):
        before = fake.store.now().gpus[0].serial
        child = forked(changed, tmp_path, 4, 10**9)
        while fake.store.now().gpus[0].serial == before:
            time.sleep(0.001)
        time.sleep(more_ms / 3000)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert [instance.place.start for instance in fake.instances()] in ([], [4])
        with mig_driver(tmp_path) as (_, driver):
            for instance in driver.instances():
                driver.destroy(instance)
