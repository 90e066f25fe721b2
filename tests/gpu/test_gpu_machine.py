"""What /proc and /dev tell, on a machine made of files, and what the doctor makes of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from migrator.core.placement import Place
from migrator.gpu.doctor import (
    Check,
    Machine,
    RunningMpsDaemon,
    Verdict,
    capability_check,
    compute_mode_check,
    holder_checks,
    mps_checks,
)
from migrator.gpu.drivers.base import Holder
from migrator.gpu.drivers.nvidia_smi import compute_mode
from migrator.gpu.drivers.virtual_board import BoardFile, BoardState
from migrator.gpu.drivers.virtual_board import VirtualInstance as Share
from migrator.gpu.lock import GpuLock
from migrator.io.processes import boot_id


class Made:
    """A machine made of files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc" / "driver" / "nvidia").mkdir(parents=True)
        (root / "dev").mkdir()
        (root / "proc" / "version").touch()
        self.machine = Machine(root)

    def capability(self, text: str) -> Path:
        """The capability to change instances, as the kernel module tells it."""
        folder = self.root / "proc" / "driver" / "nvidia" / "capabilities" / "mig"
        folder.mkdir(parents=True)
        (folder / "config").write_text(text, "ascii")
        caps = self.root / "dev" / "nvidia-caps"
        caps.mkdir()
        return caps / "nvidia-cap1"

    def process(self, pid: int, command: str, opens: str = "", **environment: str) -> Path:
        """A process with its command line, an open file, an environment."""
        folder = self.root / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "cmdline").write_bytes(b"\0".join(command.encode().split()) + b"\0")
        (folder / "comm").write_text(command[:15] + "\n", "utf-8")
        told = b"\0".join(f"{name}={value}".encode() for name, value in environment.items())
        (folder / "environ").write_bytes(told)
        if opens:
            (folder / "fd" / "3").symlink_to(self.root / "dev" / opens)
        return folder


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


# The right to create instances.


def test_a_machine_that_tells_of_no_capability(made: Made) -> None:
    assert made.machine.capability() is None
    assert capability_check(made.machine).verdict is Verdict.WARNING


def test_a_capability_that_says_nothing(made: Made) -> None:
    made.capability("nonsense\n")
    assert made.machine.capability() is None


def test_a_node_that_is_missing(made: Made) -> None:
    node = made.capability("DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n")
    found = capability_check(made.machine)
    assert found.verdict is Verdict.PROBLEM
    assert str(node) in found.words
    assert found.run
    assert found.run.startswith("sudo nvidia-modprobe -f ")


def test_a_node_that_can_be_read_or_not(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    node = made.capability("DeviceFileMinor: 1\n")
    node.touch()
    assert capability_check(made.machine).verdict is Verdict.OK
    monkeypatch.setattr(os, "access", lambda *_: False)  # the tests may run as root
    found = capability_check(made.machine)
    assert found.verdict is Verdict.PROBLEM
    assert found.run == f"sudo setfacl -m u:$USER:r {node}"


# Who holds the GPU.


def test_who_has_the_device_open(made: Made) -> None:
    made.process(30, "/usr/bin/nv-hostengine -n", "nvidia0")
    made.process(4, "/usr/bin/python worker.py", "nvidia0")
    made.process(5, "/usr/bin/python worker.py", "nvidia1")
    made.process(6, "sleep 9")
    found = made.machine.holders(0)
    assert found.seen == (Holder(4, "python"), Holder(30, "nv-hostengine"))
    assert found.hidden == 0


def test_us_left_out_and_processes_that_end_meanwhile(made: Made) -> None:
    made.process(os.getpid(), "migrator gpu doctor", "nvidia0")
    (made.root / "proc" / "77").mkdir()
    assert made.machine.holders(0).seen == ()


def test_processes_that_may_not_be_looked_at(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = made.process(8, "secret", "nvidia0")
    listing = Path.iterdir

    def refused(path: Path) -> object:
        if path == hidden / "fd":
            raise PermissionError
        return listing(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    assert made.machine.holders(0).hidden == 1


def test_a_machine_without_proc(tmp_path: Path) -> None:
    assert Machine(tmp_path).holders(0).seen == ()
    assert Machine(tmp_path).mps_daemons() == ()


def test_a_file_that_is_closed_meanwhile_hides_no_other(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made.process(8, "python", "nvidia0")
    (folder / "fd" / "1").symlink_to("/dev/null")
    reading = Path.readlink

    def closed(path: Path) -> Path:
        if path.name == "1":
            raise FileNotFoundError
        return reading(path)

    monkeypatch.setattr(Path, "readlink", closed)
    assert made.machine.holders(0).seen == (Holder(8, "python"),)


def test_a_process_without_a_command_line_has_its_short_name(made: Made) -> None:
    folder = made.process(9, "kworker", "nvidia0")
    (folder / "cmdline").write_bytes(b"")
    assert made.machine.holders(0).seen == (Holder(9, "kworker"),)


def verdicts(checks: list[Check]) -> list[tuple[Verdict, str | None]]:
    return [(each.verdict, each.run) for each in checks]


def test_what_holders_mean() -> None:
    assert verdicts([*holder_checks([], 0)]) == [(Verdict.OK, None)]
    assert verdicts([*holder_checks([Holder(1, "nvidia-persistenced")], 3)]) == [(Verdict.OK, None)]
    found = [
        *holder_checks(
            [Holder(1, "nv-hostengine"), Holder(2, "Xorg"), Holder(3, "python")], hidden=0
        )
    ]
    assert verdicts(found) == [
        (Verdict.WARNING, "sudo systemctl stop nvidia-dcgm"),
        (Verdict.WARNING, "sudo systemctl isolate multi-user"),
        (Verdict.OK, None),
    ]
    assert "nv-hostengine (process 1)" in found[0].words


# MPS daemons.


def test_mps_daemons_by_their_pipe_directory(made: Made) -> None:
    made.process(5, "nvidia-cuda-mps-control -d", CUDA_MPS_PIPE_DIRECTORY="/x/pipe", HOME="/")
    made.process(6, "nvidia-cuda-mps-control -d", HOME="/")
    (made.process(7, "nvidia-cuda-mps-control -d") / "environ").unlink()
    made.process(8, "nvidia-cuda-mps-server", CUDA_MPS_PIPE_DIRECTORY="/x/pipe")
    assert made.machine.mps_daemons() == (
        RunningMpsDaemon(5, "/x/pipe"),
        RunningMpsDaemon(6, "/tmp/nvidia-mps"),
        RunningMpsDaemon(7, None),
    )


def test_daemons_of_ours_and_of_others(made: Made, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert verdicts([*mps_checks(state, made.machine)]) == [(Verdict.OK, None)]
    ours = state / "mps-12345678" / "pipe"
    made.process(5, "nvidia-cuda-mps-control -d", CUDA_MPS_PIPE_DIRECTORY=str(ours))
    (left,) = mps_checks(state, made.machine)
    assert left.verdict is Verdict.WARNING
    assert left.run == f"echo quit | CUDA_MPS_PIPE_DIRECTORY={ours} nvidia-cuda-mps-control"
    ours.parent.mkdir(parents=True)
    (ours.parent / "shares.json").write_text("damaged", "utf-8")
    assert verdicts([*mps_checks(state, made.machine)]) == [(Verdict.OK, None)]
    made.process(6, "nvidia-cuda-mps-control -d", HOME="/")
    other = [*mps_checks(state, made.machine)][-1]
    assert other.verdict is Verdict.WARNING
    assert "somebody else" in other.words


def test_a_daemon_without_shares_whose_gpu_somebody_is_at_work_on(
    made: Made, tmp_path: Path
) -> None:
    """The profiler's: it keeps the GPU's lock as long as it measures."""
    state = tmp_path / "state"
    state.mkdir()
    ours = state / "profile-12345678" / "pipe"
    made.process(5, "nvidia-cuda-mps-control -d", CUDA_MPS_PIPE_DIRECTORY=str(ours))
    lock = GpuLock(state, "GPU-12345678-0000")
    lock.acquire()
    (at_work,) = mps_checks(state, made.machine, lock)
    assert at_work.verdict is Verdict.OK
    assert f"process {os.getpid()}" in at_work.words
    lock.release()
    (left,) = mps_checks(state, made.machine, lock)
    assert left.verdict is Verdict.WARNING


def test_shares_whose_daemon_is_dead(made: Made, tmp_path: Path) -> None:
    file = BoardFile(tmp_path / "state" / "mps-12345678" / "shares.json")
    file.path.parent.mkdir(parents=True)
    share = Share(Place(0, "1g.18gb"), 1, "MPS-1")
    file.replace(BoardState("H200-141GB", boot_id(), (share,)))
    (dead,) = mps_checks(tmp_path / "state", made.machine)
    assert dead.verdict is Verdict.WARNING
    assert "their daemon does not run" in dead.words
    pipes = file.path.parent / "pipe"
    made.process(5, "nvidia-cuda-mps-control -d", CUDA_MPS_PIPE_DIRECTORY=str(pipes))
    assert verdicts([*mps_checks(tmp_path / "state", made.machine)]) == [(Verdict.OK, None)]
    file.replace(BoardState("H200-141GB", "another boot", (share,)))
    (left,) = mps_checks(tmp_path / "state", made.machine)
    assert "left behind" in left.words


# Compute mode.


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [
        (None, Verdict.OK),
        ("Default", Verdict.OK),
        ("Exclusive_Process", Verdict.WARNING),
        ("Prohibited", Verdict.PROBLEM),
    ],
)
def test_compute_modes(mode: str | None, verdict: Verdict) -> None:
    found = compute_mode_check(2, mode)
    assert found.verdict is verdict
    assert (found.run == "sudo nvidia-smi -i 2 -c DEFAULT") == (verdict is not Verdict.OK)


def test_the_compute_mode_is_asked_of_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compute_mode(0) is None
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!{sys.executable}\nprint('Exclusive_Process')\n", "utf-8")
    program.chmod(0o755)
    assert compute_mode(0) == "Exclusive_Process"
    program.write_text(f"#!{sys.executable}\nraise SystemExit(9)\n", "utf-8")
    assert compute_mode(0) is None
