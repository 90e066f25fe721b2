"""MPS shares: a daemon of our own comes with the first and goes with the last."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import pytest
from support.children import child
from support.nvidia_programs import NvidiaPrograms

from migrator.core.catalogue import Place, board
from migrator.core.errors import GpuError, InputError
from migrator.gpu.drivers import nvidia_smi
from migrator.gpu.drivers.base import GpuDriver, InUseError, RefusedError
from migrator.gpu.drivers.mps import (
    PERCENTAGE,
    MpsDaemon,
    MpsDriver,
    memory_limit,
    percentage,
    safe_sms,
)
from migrator.gpu.drivers.registry import open_driver
from migrator.gpu.drivers.virtual_board import STANDBY, register_use
from migrator.io.processes import is_running

pytestmark = pytest.mark.usefixtures("programs")
THREE, FOUR = Place(4, "3g.71gb"), Place(0, "4g.71gb")


def running(driver: MpsDriver) -> int:
    pid = driver.daemon.running()
    assert pid is not None
    return pid


def test_the_daemon_comes_with_the_first_share_and_goes_with_the_last(
    programs: NvidiaPrograms, state: Path
) -> None:
    driver = MpsDriver.open(0, state)
    as_any: GpuDriver = driver
    assert as_any.gpu().board.name == "H200-141GB"
    assert driver.daemon.running() is None
    three = driver.create(THREE)
    pid = running(driver)
    four = driver.create(FOUR)
    assert driver.instances() == (four, three)
    driver.destroy(three)
    assert running(driver) == pid
    driver.destroy(four)
    assert driver.daemon.running() is None
    assert not is_running(pid)
    assert [line.partition(" ")[0] for line in programs.log() if "list" not in line] == [
        "start",
        "quit",
    ]
    assert sorted(path.name for path in next(state.iterdir()).iterdir()) == [
        "daemon.lock",
        "shares.json",
        "shares.lock",
    ]


def test_a_worker_gets_the_sms_of_its_instance(state: Path) -> None:
    driver = MpsDriver.open(0, state)
    four = driver.create(FOUR)
    environment = driver.environment(four)
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "48.5"
    assert environment["CUDA_MPS_PIPE_DIRECTORY"] == str(driver.daemon.pipes)
    assert environment["CUDA_MPS_LOG_DIRECTORY"] == str(driver.daemon.logs)
    assert environment["CUDA_MPS_PIPE_DIRECTORY"].startswith(str(state))
    assert "CUDA_VISIBLE_DEVICES" not in environment
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in environment
    limited = MpsDriver.open(0, state, limit_memory=True).environment(four)
    assert limited["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=71424M"
    driver.destroy(four)


def test_one_of_several_gpus_is_named_by_its_uuid(programs: NvidiaPrograms, state: Path) -> None:
    programs.smi(count=2)
    zero, driver = MpsDriver.open(0, state), MpsDriver.open(1, state)
    shares = zero.create(FOUR), driver.create(FOUR)
    assert running(zero) != running(driver)
    assert zero.environment(shares[0])["CUDA_VISIBLE_DEVICES"] == "GPU-0234abcd-0000"
    assert driver.environment(shares[1])["CUDA_VISIBLE_DEVICES"] == "GPU-1234abcd-0000"
    zero.destroy(shares[0])
    assert driver.daemon.running() is not None
    driver.destroy(shares[1])
    assert "start GPU-1234abcd-0000" in programs.log()


def test_the_sms_of_the_gpu_itself_count(
    programs: NvidiaPrograms, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An A100 has 108 SMs, its largest instance 98."""
    programs.smi("NVIDIA A100-SXM4-40GB", 40960)
    asked: list[Mapping[str, str]] = []

    def counted(visible: Mapping[str, str]) -> int:
        asked.append(visible)
        return 108

    monkeypatch.setattr(nvidia_smi, "device_sms", counted)
    driver = MpsDriver.open(0, state)
    assert not asked, "listing shares does not wait for CUDA"
    whole = driver.create(Place(0, "7g.40gb"))
    assert driver.environment(whole)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "90.8"
    driver.environment(whole)
    assert len(asked) == 1
    driver.destroy(whole)


def test_the_board_of_shares_has_all_slices_of_the_gpu(state: Path) -> None:
    with open_driver("mps", 0, state=state, board="H200-141GB-MPS") as driver:
        assert driver.gpu().board == board("H200-141GB-MPS")
        shares = [driver.create(Place(start, "1g.17gb")) for start in range(8)]
        percentages = {driver.environment(share)[PERCENTAGE] for share in shares}
        assert percentages == {"12.2"}
        with pytest.raises(RefusedError, match="it overlaps"):
            driver.create(Place(3, "2g.35gb"))
        for share in shares:
            driver.destroy(share)


@pytest.mark.parametrize(
    ("name", "message"),
    [("H100-80GB-SXM-MPS", "GPU 0 is a H200-141GB-MPS"), ("H200-141GB", "leave --board out")],
)
def test_the_board_of_another_gpu_or_of_mig_is_refused(
    state: Path, name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message), open_driver("mps", 0, state=state, board=name):
        pass


def test_a_gpu_without_mig_is_divided_into_sevenths(programs: NvidiaPrograms, state: Path) -> None:
    programs.smi("NVIDIA GeForce RTX 4090", 24564)
    driver = MpsDriver.open(0, state)
    names = [profile.name for profile in driver.gpu().board.profiles]
    assert names == ["1g.3gb", "2g.6gb", "3g.12gb", "4g.12gb", "7g.24gb"]
    share = driver.create(Place(4, "3g.12gb"))
    assert driver.environment(share)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "42.5"
    driver.destroy(share)


def test_a_later_process_finds_the_daemon_again(programs: NvidiaPrograms, state: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from migrator.gpu.drivers.base import Place;"
        "from migrator.gpu.drivers.mps import MpsDriver;"
        "driver = MpsDriver.open(0, Path(sys.argv[1]));"
        "driver.create(Place(4, '3g.71gb')); print(driver.daemon.running(), flush=True);"
        "import time; time.sleep(60)"
    )
    with child("-c", code, state) as (_, line):
        pid = int(line)
    driver = MpsDriver.open(0, state)
    assert running(driver) == pid
    (three,) = driver.instances()
    assert three.place == THREE
    four = driver.create(FOUR)
    assert running(driver) == pid
    for instance in (three, four):
        driver.destroy(instance)
    assert not is_running(pid)
    assert sum(line.startswith("start") for line in programs.log()) == 1


def test_a_daemon_that_was_killed_is_not_taken_for_running_and_started_anew(
    programs: NvidiaPrograms, state: Path
) -> None:
    driver = MpsDriver.open(0, state)
    share = driver.create(THREE)
    pid = running(driver)
    os.kill(pid, signal.SIGKILL)
    while is_running(pid):
        time.sleep(0.001)
    assert (driver.daemon.pipes / "nvidia-cuda-mps-control.pid").exists()
    assert driver.daemon.running() is None
    assert driver.instances() == (share,)
    driver.environment(share)
    assert running(driver) != pid
    driver.destroy(share)
    assert [line for line in programs.log() if "list" not in line] == [
        "start ",
        "start ",
        "quit -t 5",
    ]


def test_a_reused_process_id_is_no_daemon(state: Path) -> None:
    daemon = MpsDaemon(state, {})
    daemon.pipes.mkdir()
    (daemon.pipes / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
    assert daemon.running() is None
    daemon.quit()
    assert not daemon.pipes.exists()


def test_daemons_of_other_programs_are_not_touched(state: Path) -> None:
    other = MpsDaemon(state / "other", {})
    other.start()
    driver = MpsDriver.open(0, state)
    driver.destroy(driver.create(THREE))
    # even where its number is found in our folder
    driver.daemon.pipes.mkdir()
    left = driver.daemon.pipes / "nvidia-cuda-mps-control.pid"
    left.write_text(str(other.running()))
    assert driver.daemon.running() is None
    driver.daemon.quit()
    assert other.running() is not None
    other.quit()
    assert other.running() is None


def test_a_daemon_that_does_not_go_is_ended(programs: NvidiaPrograms, state: Path) -> None:
    programs.mps(obeys=False)
    driver = MpsDriver(nvidia_smi.find_gpu(0), state, end_s=0.3)
    share = driver.create(THREE)
    pid = running(driver)
    driver.destroy(share)
    assert not is_running(pid)
    assert driver.instances() == ()


def test_a_daemon_that_does_not_come_leaves_no_share(programs: NvidiaPrograms, state: Path) -> None:
    programs.mps(fails=True)
    driver = MpsDriver.open(0, state)
    with pytest.raises(GpuError, match=r"MPS could not be started \(Cannot find MPS"):
        driver.create(THREE)
    assert driver.instances() == ()
    assert not driver.daemon.pipes.exists()


def test_a_half_made_share_is_removed_with_its_daemon(state: Path) -> None:
    """Its process was killed after the daemon had started and before the share was ready."""
    driver = MpsDriver.open(0, state)
    driver.create(THREE)
    file = next(state.rglob("shares.json"))
    shares = json.loads(file.read_text())
    shares["instances"][0]["uuid"] = None
    file.write_text(json.dumps(shares))
    (half,) = driver.instances()
    assert half.uuid is None
    driver.destroy(half)
    assert driver.daemon.running() is None


def test_a_process_may_wait_for_a_share_that_does_not_exist(state: Path) -> None:
    """It holds no share, and the daemon stays for it."""
    driver = MpsDriver.open(0, state, board=board("H200-141GB-MPS"))
    instance, two = driver.create(Place(0, "1g.17gb")), Place(4, "2g.35gb")
    environment = driver.environment_ahead(two)
    assert environment[PERCENTAGE] == percentage(32, 132)
    clients = driver.daemon.pipes / "clients"
    waiting = subprocess.Popen(["sleep", "60"])
    with mock.patch.object(os, "getpid", return_value=waiting.pid), register_use(environment):
        clients.write_text(f"{waiting.pid}\n")
        assert driver.instances() == (instance,)
        driver.destroy(instance)
        assert driver.daemon.running() is not None
        share = driver.create(two)
        # a training there keeps the share, a worker may wait until it is created again
        assert environment.items() - driver.environment(share).items() == {(STANDBY, "1")}
        driver.destroy(share)
        driver.close()
        assert driver.daemon.running() is not None  # for the one that waits
        waiting.kill()
        waiting.wait()
    driver.close()
    assert driver.daemon.running() is None


def test_the_daemons_clients_hold_the_share_they_were_started_in(state: Path) -> None:
    driver = MpsDriver.open(0, state)
    three, four = driver.create(THREE), driver.create(FOUR)
    environment = {**os.environ, **driver.environment(three)}
    sleep = ["sleep", "60"]
    clients = driver.daemon.pipes / "clients"
    with subprocess.Popen(sleep, env=environment) as named, subprocess.Popen(sleep) as unnamed:
        clients.write_text(f"{named.pid}\n")
        on_four, on_three = driver.instances()
        assert [(holder.pid, holder.name) for holder in on_three.holders] == [(named.pid, "sleep")]
        assert on_four == four
        with pytest.raises(InUseError, match=rf"3g.71gb at 4 .* sleep \(process {named.pid}\)"):
            driver.destroy(three)
        clients.write_text(f"{unnamed.pid}\n")
        assert all(len(instance.holders) == 1 for instance in driver.instances())
        clients.write_text(f"{os.getpid()}\n")
        with register_use(driver.environment(four)):  # woken, not started, in its share
            on_four, on_three = driver.instances()
            assert [holder.pid for holder in on_four.holders] == [os.getpid()]
            assert on_three == three
        named.kill()
        unnamed.kill()
    clients.unlink()
    driver.destroy(three)
    driver.destroy(four)
    assert driver.daemon.running() is None


def test_what_cannot_be_shared_out_is_refused(
    programs: NvidiaPrograms, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="there is no GPU 3; this machine has 0"):
        MpsDriver.open(3, state)
    programs.smi(mig="Enabled")
    with pytest.raises(InputError, match=r"GPU 0 is in MIG mode.* use --driver mig"):
        MpsDriver.open(0, state)
    programs.smi(fails=True)
    with pytest.raises(InputError, match=r"nvidia-smi found none \(No devices were found\)"):
        MpsDriver.open(0, state)
    programs.smi("NVIDIA GeForce RTX 4090", 24564)
    monkeypatch.setattr(nvidia_smi, "device_sms", lambda _visible: None)
    with pytest.raises(InputError, match=r"the number of SMs of .* cannot be read from CUDA"):
        MpsDriver.open(0, state)


def test_missing_programs(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = NvidiaPrograms(tmp_path / "few")
    monkeypatch.setenv("PATH", f"{tmp_path / 'few'}:/bin")
    with pytest.raises(InputError, match=r"no nvidia-smi.*--driver emulated"):
        MpsDriver.open(0, state)
    programs.smi()
    with pytest.raises(InputError, match="nvidia-cuda-mps-control is not installed"):
        MpsDriver.open(0, state)


def test_a_folder_too_deep_for_sockets(state: Path) -> None:
    with pytest.raises(InputError, match="too long for the sockets of MPS"):
        MpsDriver.open(0, state / ("deep" * 20))


@pytest.mark.parametrize(
    ("name", "mib", "board_name"),
    [
        ("NVIDIA H200", 143771, "H200-141GB"),
        ("NVIDIA A100-SXM4-40GB", 40960, "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", 81920, "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", 81559, "H100-80GB-SXM"),
        ("NVIDIA H100 PCIe", 81559, "H100-80GB-PCIe"),
        ("NVIDIA B300 SXM6 AC", 275040, "B300-269GB"),
        ("NVIDIA RTX PRO 5000 Blackwell", 48935, "RTX-PRO-5000-Blackwell-48GB"),
        ("NVIDIA RTX PRO 5000 72GB Blackwell", 73415, None),
    ],
)
def test_boards_are_known_by_what_their_gpu_calls_itself(
    name: str, mib: int, board_name: str | None
) -> None:
    found_board = nvidia_smi.find_board(name, mib)
    assert (found_board and found_board.name) == board_name


def test_clocks_and_memory_are_read_and_missing_values_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '  *clocks.sm,clocks.mem*"-i 1"*) echo "1980, 3201, 41, [N/A]" ;;\n'
        '  *compute-apps=pid*) echo "123, 456"; echo "125, [N/A]" ;;\n'
        "  *) exit 6 ;;\n"
        "esac\n"
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    clocks = {"sm_mhz": 1980.0, "memory_mhz": 3201.0, "celsius": 41.0, "watts": None}
    assert nvidia_smi.readings(1) == clocks
    assert [nvidia_smi.process_mib(pid) for pid in (123, 124, 125)] == [456.0, None, None]
    smi.unlink()
    assert nvidia_smi.process_mib(123) is None
    with pytest.raises(InputError, match="no nvidia-smi"):
        nvidia_smi.readings(1)


def test_percentages_are_rounded_up_so_that_mps_gives_all_sms() -> None:
    percentages = [percentage(sms, 132) for sms in (16, 32, 60, 64, 132)]
    assert percentages == ["12.2", "24.3", "45.5", "48.5", "100"]
    for device in (56, 98, 108, 132, 148):
        for sms in range(1, device + 1):
            assert int(float(percentage(sms, device)) * device / 100 + 1e-9) == sms
    assert percentage(99, 98) == "100"


def test_a_memory_limit_is_the_instances_memory() -> None:
    kind = board("A100-40GB")
    assert memory_limit(kind, kind.profile("1g.5gb"), 40960) == "0=4864M"
    kind = board("H20-96GB")
    assert memory_limit(kind, kind.profile("3g.48gb"), 98304) == "0=49152M"


def test_since_hopper_shares_are_powers_of_two_or_the_whole_gpu_and_before_as_wished() -> None:
    wished = (1, 13, 16, 26, 33, 45, 60, 64, 90, 100, 132)
    possible = (2, 16, 16, 32, 32, 32, 64, 64, 64, 132, 132)
    assert tuple(safe_sms("NVIDIA H200", sms, 132) for sms in wished) == possible
    assert safe_sms("NVIDIA GH200 480GB", 60, 132) == safe_sms("NVIDIA B200", 60, 148) == 64
    assert [safe_sms("NVIDIA A100-SXM4-40GB", sms, 108) for sms in (14, 42, 98)] == [14, 42, 98]
    assert safe_sms("NVIDIA L40S", 0.2, 142) == 1
