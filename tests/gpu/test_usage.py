"""What NVML reports of a GPU and of its instances."""

from pathlib import Path

import pytest
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FaultKind

from migrator.gpu.drivers.usage import Usage, read_usage


def test_instances_have_memory_of_their_own(tmp_path: Path) -> None:
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
