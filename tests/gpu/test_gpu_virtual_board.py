"""MIG's rules without MIG: every placement of every board, and processes that die anywhere."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from unittest import mock

import pytest
from support.children import child

from migrator.core.catalogue import Board, Place, board, conflict
from migrator.core.errors import GpuError, InputError
from migrator.gpu.drivers.base import GpuInstance, InUseError, RefusedError
from migrator.gpu.drivers.virtual_board import VirtualBoard, register_use, take_memory
from migrator.io.processes import boot_id

A100 = board("A100-40GB")
GPU = "GPU-1"
SOME = [board(name) for name in ("A100-40GB", "A30-24GB", "H200-141GB", "GB300-278GB")]


def virtual(folder: Path, kind: Board = A100, boot: str | None = None) -> VirtualBoard:
    return VirtualBoard(folder / "gpu.json", kind, GPU, boot=boot)


def made(on: VirtualBoard, start: int, profile: str) -> GpuInstance:
    return on.create_compute_instance(on.create_gpu_instance(Place(start, profile)))


def unmake(on: VirtualBoard, instance: GpuInstance) -> None:
    on.destroy_compute_instance(instance)
    on.destroy_gpu_instance(instance)


def every_place(kind: Board) -> list[Place]:
    return [Place(start, profile.name) for profile in kind.profiles for start in profile.starts]


def slices(kind: Board, place: Place) -> set[int]:
    return set(range(place.start, place.start + kind.profile(place.profile).memory_slices))


@pytest.mark.parametrize("kind", SOME, ids=lambda kind: kind.name)
def test_two_instances_coexist_unless_they_share_a_slice_or_are_one_too_many(kind: Board) -> None:
    for place, other in combinations(every_place(kind), 2):
        apart = not slices(kind, place) & slices(kind, other)
        gpcs = kind.profile(place.profile).gpcs + kind.profile(other.profile).gpcs
        single = place.profile == other.profile and kind.profile(place.profile).max_instances == 1
        fits = apart and gpcs <= kind.compute_slices and not single
        assert (conflict(kind, [place], other) is None) is fits, (place, other)


def test_compute_slices_are_counted_too() -> None:
    """Four double-memory instances fill an A100's memory, and seven slices its compute."""
    kind = board("H200-141GB")
    doubles = [Place(start, "1g.35gb") for start in (0, 2, 4, 6)]
    for count, place in enumerate(doubles):
        assert conflict(kind, doubles[:count], place) is None
    tight = Board("tight", 3, 4, (kind.profile("2g.35gb"),))
    assert conflict(tight, [Place(0, "2g.35gb")], Place(2, "2g.35gb")) == (
        "the 3 compute slices of the GPU are not enough for both"
    )


def test_instances_are_there_for_every_process_by_start(tmp_path: Path) -> None:
    on = virtual(tmp_path)
    high, low = made(on, 4, "3g.20gb"), made(on, 0, "4g.20gb")
    assert virtual(tmp_path).instances() == (low, high) == on.instances()
    assert {low.number, high.number} == {1, 2}
    with pytest.raises(RefusedError, match=r"no room for 1g.5gb at 6: it overlaps 3g.20gb at 4;"):
        on.create_gpu_instance(Place(6, "1g.5gb"))
    with pytest.raises(InputError, match=r"3g.20gb cannot start at 2 .* it can at 0, 4"):
        on.create_gpu_instance(Place(2, "3g.20gb"))
    with pytest.raises(InputError, match=r"no MIG profile '5g.20gb'"):
        on.create_gpu_instance(Place(0, "5g.20gb"))


def test_numbers_and_uuids_come_again(tmp_path: Path) -> None:
    on = virtual(tmp_path)
    first = made(on, 0, "1g.5gb")
    made(on, 1, "1g.5gb")
    unmake(on, first)
    assert made(on, 2, "1g.5gb").number == first.number
    again = made(on, 0, "1g.5gb")
    assert (again.uuid, again.number) == (first.uuid, 3)
    assert str(again.uuid).startswith("MIG-")
    assert len({instance.uuid for instance in on.instances()}) == 3


def test_a_destroy_means_the_instance_that_was_listed(tmp_path: Path) -> None:
    on = virtual(tmp_path)
    first = made(on, 0, "1g.5gb")
    unmake(on, first)
    other = made(on, 5, "1g.5gb")
    assert other.number == first.number
    unmake(on, first)
    assert on.instances() == (other,)


def test_half_made_instances_take_their_place_and_cannot_be_used(tmp_path: Path) -> None:
    on = virtual(tmp_path)
    half = on.create_gpu_instance(Place(4, "3g.20gb"))
    assert half.uuid is None
    assert on.instances() == (half,)
    with pytest.raises(RefusedError, match=r"overlaps 3g.20gb at 4"):
        on.create_gpu_instance(Place(6, "1g.5gb"))
    with pytest.raises(GpuError, match=r"3g.20gb at 4 has no compute instance"):
        on.environment(half)
    whole = on.create_compute_instance(half)
    with pytest.raises(InUseError, match="still has a compute instance"):
        on.destroy_gpu_instance(whole)
    on.destroy_compute_instance(whole)
    assert on.instances() == (half,)
    on.destroy_gpu_instance(half)
    assert on.instances() == ()
    with pytest.raises(GpuError, match=r"3g.20gb at 4 is not there any more"):
        on.create_compute_instance(half)


def test_another_boot_finds_the_same_board_empty(tmp_path: Path) -> None:
    made(virtual(tmp_path), 0, "4g.20gb")
    assert virtual(tmp_path).boot_id == boot_id()
    rebooted = virtual(tmp_path, boot="another")
    assert rebooted.instances() == ()
    assert len(virtual(tmp_path).instances()) == 1, "nothing has been written by looking"
    made(rebooted, 0, "7g.40gb")
    assert [instance.place.profile for instance in rebooted.instances()] == ["7g.40gb"]
    assert virtual(tmp_path).instances() == ()


def test_a_file_of_another_board_or_a_damaged_one(tmp_path: Path) -> None:
    virtual(tmp_path).create_gpu_instance(Place(0, "1g.5gb"))
    with pytest.raises(InputError, match=r"is of a A100-40GB, not of a A30-24GB; .* start anew"):
        virtual(tmp_path, board("A30-24GB"))
    for damage in ("", "{", "[]", '{"version": 2}', '{"version": 1, "board": "A100-40GB"}'):
        (tmp_path / "gpu.json").write_text(damage)
        with pytest.raises(InputError, match=r"gpu.json: is damaged .* remove it"):
            virtual(tmp_path)


def test_a_state_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="name another state folder in MIGRATOR_STATE"):
        virtual(tmp_path / "file").create_gpu_instance(Place(0, "1g.5gb"))


WORKER = """
import sys
from migrator.gpu.drivers.virtual_board import register_use
with register_use(name="worker"):
    print("here", flush=True)
    sys.stdin.readline()
"""


def test_an_instance_that_a_process_holds_stays(tmp_path: Path) -> None:
    on = virtual(tmp_path)
    instance, other = made(on, 0, "4g.20gb"), made(on, 4, "3g.20gb")
    with child("-c", WORKER, **on.environment(instance)) as (process, _):
        (seen, free) = on.instances()
        assert [(holder.pid, holder.name) for holder in seen.holders] == [(process.pid, "worker")]
        assert free == other
        with pytest.raises(InUseError, match=rf"in use by worker \(process {process.pid}\)"):
            on.destroy_compute_instance(instance)
        os.kill(process.pid, signal.SIGKILL)
        while on.instances() != (instance, other):  # a zombie from here on: it is waited for later
            time.sleep(0.001)
    on.destroy_compute_instance(instance)


def test_another_process_with_the_number_of_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    on = virtual(tmp_path)
    instance = made(on, 0, "4g.20gb")
    with register_use(on.environment(instance)):
        assert on.instances()[0].holders[0].pid == os.getpid()
        file = tmp_path / "gpu.json"
        state = json.loads(file.read_text())
        state["instances"][0]["users"][0]["began"] -= 1
        file.write_text(json.dumps(state))
        assert on.instances() == (instance,)


def test_registering_needs_a_virtual_board_and_an_existing_instance(tmp_path: Path) -> None:
    with register_use({}):
        pass
    on = virtual(tmp_path)
    instance = made(on, 0, "4g.20gb")
    environment = on.environment(instance)
    on.destroy_compute_instance(instance)
    with (
        pytest.raises(GpuError, match=f"{instance.uuid}: there is no such instance"),
        register_use(environment),
    ):
        pass


RESTLESS = """
import random, sys
from pathlib import Path
from migrator.core.catalogue import board
from migrator.core.errors import GpuError
from migrator.core.catalogue import Place
from migrator.gpu.drivers.virtual_board import VirtualBoard

on = VirtualBoard(Path(sys.argv[1]), board("A100-40GB"), "GPU-1")
draw = random.Random(int(sys.argv[2]))
print("here", flush=True)
for _ in range(int(sys.argv[3])):
    try:
        if draw.random() < 0.5:
            start = draw.randrange(7)
            on.create_compute_instance(on.create_gpu_instance(Place(start, "1g.5gb")))
        elif there := on.instances():
            chosen = draw.choice(there)
            on.destroy_compute_instance(chosen)
            on.destroy_gpu_instance(chosen)
    except GpuError:
        pass
"""


def consistent(on: VirtualBoard) -> None:
    there = on.instances()
    assert len({instance.number for instance in there}) == len(there)
    for count, instance in enumerate(there):
        assert conflict(A100, [other.place for other in there[:count]], instance.place) is None


def test_killed_processes_leave_a_board_that_keeps_the_rules(tmp_path: Path) -> None:
    on, draw = virtual(tmp_path), random.Random(6)
    for seed in range(4):
        with child("-c", RESTLESS, tmp_path / "gpu.json", seed, 10**9):
            time.sleep(draw.uniform(0, 0.02))
        consistent(on)
    for instance in on.instances():
        unmake(on, instance)
    made(on, 0, "7g.40gb")
    assert len(list(tmp_path.iterdir())) <= 3, "state, lock, and one unfinished file at most"


def test_several_processes_at_once_keep_the_rules(tmp_path: Path) -> None:
    on = virtual(tmp_path)
    with ExitStack() as stack:
        programs = [child("-c", RESTLESS, tmp_path / "gpu.json", seed, 120) for seed in range(2)]
        processes = [stack.enter_context(program)[0] for program in programs]
        while any(process.poll() is None for process in processes):
            consistent(on)
        assert [process.returncode for process in processes] == [0, 0]


@contextmanager
def _process_with(
    environment: dict[str, str], mib: float, least_mib: float | None = None
) -> Iterator[str]:
    """A process that takes memory and stays; what it is said."""
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            with mock.patch.object(os, "getpid", return_value=process.pid):
                take_memory(least_mib or mib, mib, environment)
            said = "taken"
        except GpuError as error:
            said = str(error).partition(":")[0]
        try:
            yield said
        finally:
            process.kill()


@pytest.mark.parametrize(("name", "gpcs", "whole"), [("A100-40GB", 3, 3), ("H200-141GB-MPS", 4, 8)])
def test_instances_have_memory_of_their_own_and_shares_that_of_the_gpu(
    tmp_path: Path, name: str, gpcs: int, whole: int
) -> None:
    kind = board(name)
    on, whole_mib = virtual(tmp_path, kind), kind.memory_mib_of(whole)
    places = ((0, kind.plain_profiles[gpcs].name), (4, kind.plain_profiles[gpcs].name))
    first, second = (on.environment(made(on, *place)) for place in places)
    beside = "taken" if gpcs == whole else "out of memory"
    with (
        _process_with(first, 0.6 * whole_mib) as one,
        _process_with(first, 0.6 * whole_mib) as same,
        _process_with(second, 0.6 * whole_mib) as other,
        _process_with(first, 0.6 * whole_mib, 0.3 * whole_mib) as modest,
    ):
        assert (one, same, other, modest) == ("taken", "out of memory", beside, "taken")
    with _process_with(first, 0.6 * whole_mib) as said:
        assert said == "taken", "processes that ended have freed theirs"
    take_memory(1e9, 1e9, {})
