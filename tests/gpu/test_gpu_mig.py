"""The `mig` driver over the fake NVML: every board, every place, every refusal."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FakeNvml, FaultKind

from migrator.core.catalogue import Place, boards
from migrator.core.errors import GpuError, InputError
from migrator.gpu.drivers import mig
from migrator.gpu.drivers.base import (
    HalfMadeError,
    Holder,
    InUseError,
    NotPermittedError,
    RefusedError,
    TransientError,
)
from migrator.gpu.drivers.nvml import LostError

NO_PROCESS = 4_000_000
"""A process that cannot be: above the kernel's largest number."""


@contextmanager
def machine(
    folder: Path, board: str = "A100-40GB", *, mig_on: bool = True
) -> Iterator[tuple[FakeNvml, mig.MigDriver]]:
    """A fake machine and its driver."""
    with installed(folder, [board], mig=mig_on) as fake, mig.open_mig(0) as driver:
        yield fake, driver


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeNvml]:
    with installed(tmp_path, ["A100-40GB"]) as fake:
        yield fake


@pytest.fixture
def driver(fake: FakeNvml) -> Iterator[mig.MigDriver]:
    with mig.open_mig(0, boot_id=fake.boot_id) as driver:
        yield driver


@pytest.mark.parametrize("name", ["A30-24GB", "A100-40GB", "H200-141GB", "GB300-278GB"])
def test_every_profile_at_every_start(tmp_path: Path, name: str) -> None:
    with machine(tmp_path, name) as (fake, driver):
        for profile in boards()[name].profiles:
            for start in profile.starts:
                place = Place(start, profile.name)
                instance = driver.create(place)
                assert instance.place == place
                assert driver.instances() == fake.instances() == (instance,)
                assert fake.store.now().gpus[0].instances[0].compute[0].slices == profile.gpcs
                driver.destroy(instance)
                assert driver.instances() == fake.instances() == ()


def test_the_gpu(fake: FakeNvml, driver: mig.MigDriver) -> None:
    gpu = driver.gpu()
    assert (gpu.index, gpu.name, gpu.divides) == (0, "NVIDIA A100-40GB", True)
    assert gpu.board == boards()["A100-40GB"]
    assert gpu.boot_id == fake.boot_id()
    assert gpu.uuid.startswith("GPU-")


def test_a_half_made_instance_is_listed_and_can_only_be_destroyed(
    fake: FakeNvml, driver: mig.MigDriver
) -> None:
    half = fake.foreign(4, "3g.20gb", whole=False)
    assert driver.instances() == (half,)
    assert half.uuid is None
    with pytest.raises(GpuError, match="no compute instance, nothing can run there"):
        driver.environment(half)
    driver.destroy(half)
    assert driver.instances() == ()


def test_an_instance_in_use_is_refused_and_stays_whole(
    fake: FakeNvml, driver: mig.MigDriver
) -> None:
    instance = driver.create(Place(4, "3g.20gb"))
    fake.hold(4, NO_PROCESS)
    fake.hold(4, 1)
    with pytest.raises(
        InUseError, match=rf"process 1\), unknown \(process {NO_PROCESS}\); end them"
    ):
        driver.destroy(instance)
    held = driver.instances()[0]
    assert [holder.pid for holder in held.holders] == [1, NO_PROCESS]
    assert held.holders[1] == Holder(NO_PROCESS, "unknown")
    assert held.uuid == instance.uuid
    fake.release()
    driver.destroy(held)
    assert driver.instances() == ()


@pytest.mark.parametrize("kind", [FaultKind.IN_USE, FaultKind.TRANSIENT_DESTROY])
def test_in_use_without_a_process_is_transient_and_passes(
    fake: FakeNvml, driver: mig.MigDriver, kind: FaultKind
) -> None:
    instance = driver.create(Place(4, "3g.20gb"))
    fake.fault(kind, 2)
    for _ in range(2):
        with pytest.raises(TransientError, match=r"3g\.20gb at 4 though no process is on it"):
            driver.destroy(instance)
    assert len(driver.instances()) == 1
    driver.destroy(instance)
    assert driver.instances() == ()


def test_what_is_gone_or_another_is_left_alone(fake: FakeNvml, driver: mig.MigDriver) -> None:
    instance = driver.create(Place(4, "2g.10gb"))
    fake.remove(4)
    driver.destroy(instance)
    other = fake.foreign(4, "1g.10gb")
    assert other.number == instance.number
    driver.destroy(instance)
    assert driver.instances() == (other,)


def test_no_room_names_what_is_in_the_way(driver: mig.MigDriver) -> None:
    driver.create(Place(4, "2g.10gb"))
    with pytest.raises(RefusedError, match=r"3g\.20gb at 4: 2g\.10gb at 4 is there; destroy"):
        driver.create(Place(4, "3g.20gb"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (pynvml.NVML_ERROR_UNKNOWN, RefusedError),
        (pynvml.NVML_ERROR_INVALID_ARGUMENT, RefusedError),
        (pynvml.NVML_ERROR_IN_USE, RefusedError),
        (pynvml.NVML_ERROR_TIMEOUT, TransientError),
        (pynvml.NVML_ERROR_GPU_IS_LOST, LostError),
    ],
)
def test_a_gpu_instance_that_is_refused_for_whatever_reason_was_not_made(
    driver: mig.MigDriver, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[GpuError]
) -> None:
    """Where the board has no clear answer the kind of the error says so."""

    def refused(*_: object) -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlDeviceCreateGpuInstanceWithPlacement", refused)
    with pytest.raises(GpuError) as raised:
        driver.create(Place(4, "3g.20gb"))
    assert type(raised.value) is kind


def test_no_orphan_where_the_compute_instance_is_refused(
    fake: FakeNvml, driver: mig.MigDriver
) -> None:
    fake.fault(FaultKind.COMPUTE_REFUSED)
    with pytest.raises(
        RefusedError, match=r"4 \(Insufficient resources\); nothing of it is left; try again"
    ):
        driver.create(Place(4, "3g.20gb"))
    assert driver.instances() == ()
    assert fake.faults() == ()


def test_an_orphan_that_stays_is_reported(fake: FakeNvml, driver: mig.MigDriver) -> None:
    fake.fault(FaultKind.COMPUTE_REFUSED)
    fake.fault(FaultKind.TRANSIENT_DESTROY, None)
    with pytest.raises(
        HalfMadeError, match=r"removed either; `nvidia-smi mig -i 0 -dgi -gi \d+`"
    ) as raised:
        driver.create(Place(4, "3g.20gb"))
    (half,) = driver.instances()
    assert half.uuid is None
    assert raised.value.number == half.number


NVML_CALLS_OF_A_LOOK = (
    "nvmlGpuInstanceGetInfo",
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    "nvmlGpuInstanceGetComputeInstances",
    "nvmlComputeInstanceGetInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetUUID",
)


@pytest.mark.parametrize("call", NVML_CALLS_OF_A_LOOK)
@pytest.mark.parametrize("after", [0, 3])
def test_what_goes_while_it_is_read_is_left_out_and_spoils_nothing(
    tmp_path: Path, call: str, after: int
) -> None:
    """Another program destroys an instance between two calls of one listing."""
    calls: list[str] = []
    looking = False

    def before(name: str) -> None:
        if looking and name == call:
            calls.append(name)
            if len(calls) == after + 1:
                there = FakeNvml(tmp_path)
                there.remove(there.instances()[0].place.start)

    with installed(tmp_path, before=before) as fake, mig.open_mig(0) as driver:
        driver.gpu()
        fake.foreign(0, "2g.10gb")
        other = fake.foreign(4, "3g.20gb")
        looking = True
        listed = driver.instances()
        looking = False
        assert listed[-1] == other
        fake.remove(4)
        for instance in fake.instances():
            fake.remove(instance.place.start)
        for place in (Place(0, "2g.10gb"), Place(4, "3g.20gb")):
            assert driver.create(place).uuid, "no profile was remembered by halves"
            compute = fake.store.now().gpus[0].instances[-1].compute
            assert [instance.slices for instance in compute] == [int(place.profile[0])]


def test_a_destroy_that_another_program_does_first(tmp_path: Path) -> None:
    done: list[str] = []

    def before(name: str) -> None:
        if name == "nvmlComputeInstanceDestroy" and not done:
            done.append(name)
            FakeNvml(tmp_path).remove(4)

    with installed(tmp_path, before=before), mig.open_mig(0) as driver:
        driver.destroy(driver.create(Place(4, "3g.20gb")))
        assert done
        assert driver.instances() == ()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (pynvml.NVML_ERROR_UNKNOWN, TransientError),
        (pynvml.NVML_ERROR_NO_PERMISSION, NotPermittedError),
        (pynvml.NVML_ERROR_GPU_IS_LOST, LostError),
    ],
)
def test_once_its_compute_instance_is_gone_what_refuses_does_so_for_a_moment(
    fake: FakeNvml,
    driver: mig.MigDriver,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    kind: type[GpuError],
) -> None:
    instance = driver.create(Place(4, "3g.20gb"))
    with monkeypatch.context() as patched:

        def refused(_: object) -> None:
            raise pynvml.NVMLError(code)

        patched.setattr(pynvml, "nvmlGpuInstanceDestroy", refused)
        with pytest.raises(kind) as raised:
            driver.destroy(instance)
        assert type(raised.value) is kind
    driver.destroy(instance)
    assert fake.instances() == ()


def test_an_interruption_leaves_no_orphan(tmp_path: Path) -> None:
    def interrupt(name: str) -> None:
        if name == "nvmlGpuInstanceCreateComputeInstance":
            raise KeyboardInterrupt

    with installed(tmp_path, before=interrupt) as fake, mig.open_mig(0) as driver:
        with pytest.raises(KeyboardInterrupt):
            driver.create(Place(4, "3g.20gb"))
        assert fake.instances() == ()


def test_lost_rights(fake: FakeNvml, driver: mig.MigDriver) -> None:
    instance = driver.create(Place(0, "4g.20gb"))
    fake.fault(FaultKind.NO_PERMISSION, None)
    attempts = (
        lambda: driver.create(Place(4, "3g.20gb")),
        lambda: driver.destroy(instance),
        driver.instances,
    )
    for attempt in attempts:
        with pytest.raises(NotPermittedError, match=r"run it as root.*mig/config"):
            attempt()
    assert driver.gpu().divides
    fake.mend()
    assert driver.instances() == (instance,)


def test_mig_mode_off(tmp_path: Path) -> None:
    with machine(tmp_path, mig_on=False) as (_, driver):
        assert not driver.gpu().divides
        assert driver.gpu().board == boards()["A100-40GB"]
        assert driver.instances() == ()
        with pytest.raises(InputError, match=r"MIG mode of GPU 0 is off; .*--enable-mig.* -mig 1"):
            driver.create(Place(4, "3g.20gb"))


def test_mig_mode_is_switched_on_when_asked(tmp_path: Path) -> None:
    with machine(tmp_path, mig_on=False) as (fake, driver):
        fake.hold(None, NO_PROCESS)
        fake.fault(FaultKind.GPU_LOST, after=2)
        with pytest.raises(InUseError, match="a process that NVML does not list uses the GPU"):
            driver.enable_mig()
        assert driver.holders() == (Holder(NO_PROCESS, "unknown"),)
        with pytest.raises(InUseError, match=f"stays off because .*process {NO_PROCESS}"):
            driver.enable_mig()
        assert driver.mig_mode() == (False, True)
        fake.release()
        driver.enable_mig()
        assert driver.gpu().divides
        driver.create(Place(4, "3g.20gb"))
        driver.enable_mig()
        assert len(driver.instances()) == 1


def test_mig_mode_that_waits_for_a_reset(tmp_path: Path) -> None:
    with machine(tmp_path, mig_on=False) as (fake, driver):
        fake.fault(FaultKind.RESET_REQUIRED)
        with pytest.raises(GpuError, match=r"switch MIG mode on.*--gpu-reset"):
            driver.enable_mig()
        assert not driver.gpu().divides


def test_a_reboot(tmp_path: Path) -> None:
    with machine(tmp_path, "H200-141GB") as (fake, driver):
        instance = driver.create(Place(4, "3g.71gb"))
        before = driver.gpu()
        fake.reboot()
        after = driver.gpu()
        assert after.boot_id != before.boot_id
        assert (before.divides, after.divides) == (True, False)
        assert driver.instances() == ()
        driver.destroy(instance)


def test_a_lost_gpu(fake: FakeNvml, driver: mig.MigDriver) -> None:
    fake.fault(FaultKind.GPU_LOST, None)
    with pytest.raises(GpuError, match="reboot, and look at `dmesg`"):
        driver.gpu()
