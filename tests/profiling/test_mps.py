"""Shares as MPS percentages: a daemon of our own, gone afterwards whatever happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.core.catalogue import board
from migrator.core.errors import InputError, MigratorError
from migrator.profiling import nvidia_smi
from migrator.profiling.measurements import measurements
from migrator.profiling.mps import Mps, percentage
from migrator.profiling.results import Results
from migrator.profiling.run import profile

H200 = board("H200-141GB")

Install = Callable[..., Path]


def alive(number: str) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except OSError:
        return False


def test_percentages_are_rounded_up_so_that_mps_gives_all_sms() -> None:
    assert [percentage(sms, 132) for sms in (16, 32, 60, 64, 132)] == [
        "12.2",
        "24.3",
        "45.5",
        "48.5",
        "100",
    ]
    for device in (56, 98, 108, 132, 148):
        for sms in range(1, device + 1):
            assert int(float(percentage(sms, device)) * device / 100 + 1e-9) == sms


def test_the_daemon_has_folders_of_its_own_and_is_told_to_quit(nvidia: Install) -> None:
    log = nvidia()
    driver = Mps.found(0, None)
    assert driver.board.name == "H200-141GB"
    with driver.opened():
        _, pipes, logs, number = log.read_text().split()
        assert alive(number)
        with driver.share(32) as share:
            assert share.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "24.3"
            assert share.environment["CUDA_MPS_PIPE_DIRECTORY"] == pipes == logs
            assert share.memory_gib == 32.5
        assert "CUDA_MPS_PIPE_DIRECTORY" not in driver.whole().environment
    assert log.read_text().splitlines()[1:] == ["quit -t 5"]
    assert not alive(number)
    assert not Path(pipes).exists()


def test_a_daemon_that_does_not_go_is_ended(nvidia: Install) -> None:
    log = nvidia(obey=False)
    driver = Mps(nvidia_smi.gpu(0), H200, end_s=0.5)
    with pytest.raises(ZeroDivisionError), driver.opened():
        raise ZeroDivisionError
    assert not alive(log.read_text().split()[3])


def test_a_worker_that_crashes_leaves_no_daemon(nvidia: Install, tmp_path: Path) -> None:
    """There is no GPU behind it, so torch ends the worker with an error."""
    log = nvidia()
    driver = Mps.found(0, H200)
    todo = measurements(H200, ["small-cnn"], [1])[:1]
    out = tmp_path / "profiles.json"
    with pytest.raises(MigratorError, match="a worker process ended"):
        profile(todo, driver, Results(tmp_path / "rows", {}), out)
    assert log.read_text().splitlines()[-1] == "quit -t 5"
    assert not alive(log.read_text().split()[3])
    assert not out.exists()


def test_gpus_that_cannot_be_shared_out_are_refused(nvidia: Install) -> None:
    nvidia(mig="Enabled")
    with pytest.raises(InputError, match="GPU 0 is in MIG mode"):
        Mps.found(0, None)
    with pytest.raises(InputError, match="there is no GPU 3; this machine has 0"):
        Mps.found(3, None)
    with pytest.raises(InputError, match="scenario is of a A30-24GB, GPU 0 is a H200-141GB"):
        Mps.found(0, board("A30-24GB"))


@pytest.mark.parametrize(
    ("name", "mib", "known"),
    [
        ("NVIDIA H200", 143771, "H200-141GB"),
        ("NVIDIA A100-SXM4-40GB", 40960, "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", 81920, "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", 81559, "H100-80GB-SXM"),
        ("NVIDIA H100 NVL", 95830, "H100-94GB-NVL"),
        ("NVIDIA A30", 24576, "A30-24GB"),
    ],
)
def test_boards_are_known_by_what_their_gpu_calls_itself(
    nvidia: Install, name: str, mib: int, known: str
) -> None:
    nvidia(name=name, mib=mib)
    assert nvidia_smi.board_of(nvidia_smi.gpu(0)).name == known


def test_a_gpu_without_instances_is_refused(nvidia: Install) -> None:
    nvidia(name="NVIDIA GeForce RTX 4090", mib=24564)
    with pytest.raises(InputError, match="RTX 4090 with 24 GiB is no board"):
        nvidia_smi.board_of(nvidia_smi.gpu(0))


def test_clocks_are_read_and_what_is_not_told_is_none(nvidia: Install) -> None:
    nvidia()
    assert nvidia_smi.readings(0) == {
        "sm_mhz": 1980.0,
        "memory_mhz": 3201.0,
        "celsius": 41.0,
        "watts": None,
    }
    assert nvidia_smi.process_mib(123) == 456.0
    assert nvidia_smi.process_mib(124) is None
