"""The fake NVML: as strict as the real library, with the rules of every board, and crash-safe."""

from collections.abc import Callable
from ctypes import byref, c_uint
from pathlib import Path
from typing import Any

import pynvml
import pytest
from support.fake_nvml import state as rules
from support.fake_nvml.library import installed
from support.fake_nvml.state import FakeGpu

from migrator.core.catalogue import boards, placement_sets

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
