"""What NVML reports of a GPU and of its instances."""

from pathlib import Path

import pynvml
import pytest
from support.fake_nvml import library
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FaultKind

from migrator.gpu.drivers.usage import Usage, read_usage


def test_instances_have_their_own_memory_and_use_since_hopper(tmp_path: Path) -> None:
    with installed(tmp_path, ["H200-141GB"], mig=True) as fake:
        fake.foreign(4, "3g.71gb")
        fake.foreign(0, "4g.71gb")
        fake.hold(4, 4711)
        fake.hold(4, 4712)
        first, second = read_usage(0)
        assert not library._SAMPLES  # all freed
    assert (first.start, first.used_mib, first.busy) == (0, 0, 0.0)
    assert (second.start, second.used_mib, second.busy) == (4, 1024, 0.5)


@pytest.mark.parametrize(
    ("absent", "code"),
    [
        ("nvmlGpmQueryDeviceSupport", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        ("nvmlGpmMigSampleGet", pynvml.NVML_ERROR_NO_PERMISSION),
    ],
)
def test_a_driver_that_does_not_say_how_busy_instances_are_is_no_error(
    tmp_path: Path, absent: str, code: int
) -> None:
    def refuse(name: str) -> None:
        if name == absent:
            raise pynvml.NVMLError(code)

    with installed(tmp_path, ["H200-141GB"], mig=True, before=refuse) as fake:
        fake.foreign(0, "4g.71gb")
        (usage,) = read_usage(0)
    assert (usage.start, usage.busy) == (0, None)


def test_instances_before_hopper_have_no_utilisation(tmp_path: Path) -> None:
    with installed(tmp_path, ["A100-40GB"], mig=True) as fake:
        fake.foreign(4, "3g.20gb")
        fake.foreign(0, "4g.20gb")
        fake.hold(4, 4711)
        first, second = read_usage(0)
    assert (first.start, first.used_mib, first.busy) == (0, 0, None)
    assert (second.start, second.used_mib, second.busy) == (4, 512, None)
    assert 15_000 < second.total_mib < 21_000


def test_a_gpu_without_instances_is_one(tmp_path: Path) -> None:
    with installed(tmp_path, ["A100-40GB"], mig=False) as fake:
        fake.hold(None, 4711)
        (usage,) = read_usage(0)
    assert isinstance(usage, Usage)
    assert (usage.start, usage.busy, usage.used_mib) == (None, 0.25, 512)


@pytest.mark.parametrize("fault", [FaultKind.NO_LIBRARY, FaultKind.NO_DRIVER])
def test_without_a_driver_there_is_nothing(tmp_path: Path, fault: FaultKind) -> None:
    with installed(tmp_path) as fake:
        fake.fault(fault)
        assert read_usage(0) == ()
