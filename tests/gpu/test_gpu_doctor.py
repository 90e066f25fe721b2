"""What /proc and /dev tell, on a machine made of files, and what the doctor makes of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.catalogue import Place, board
from migrator.gpu.doctor import (
    Check,
    Machine,
    Severity,
    capability_check,
    compute_mode_check,
    examine,
    holder_checks,
    instance_checks,
    manager_checks,
    mps_checks,
)
from migrator.gpu.drivers.base import Gpu, GpuInstance, Holder
from migrator.gpu.drivers.virtual_board import BoardFile, BoardState, EmulatedDriver
from migrator.gpu.drivers.virtual_board import VirtualInstance as Share
from migrator.gpu.journal import Journal
from migrator.gpu.partitioner import GpuLock
from migrator.io.processes import boot_id


class MachineFiles:
    """A machine files of files."""

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
        variables = b"\0".join(f"{name}={value}".encode() for name, value in environment.items())
        (folder / "environ").write_bytes(variables)
        if opens:
            (folder / "fd" / "3").symlink_to(self.root / "dev" / opens)
        return folder


@pytest.fixture
def files(tmp_path: Path) -> MachineFiles:
    return MachineFiles(tmp_path)


# The right to create instances.


def test_the_capability_to_create_instances_is_found_missing_or_closed(
    files: MachineFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert capability_check(files.machine).severity is Severity.WARNING
    node = files.capability("DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n")
    check = capability_check(files.machine)
    assert check.severity is Severity.PROBLEM
    assert str(node) in check.message
    assert check.run
    assert check.run.startswith("sudo nvidia-modprobe -f ")
    node.touch()
    assert capability_check(files.machine).severity is Severity.OK
    monkeypatch.setattr(os, "access", lambda *_: False)  # the tests may run as root
    check = capability_check(files.machine)
    assert check.severity is Severity.PROBLEM
    assert check.run == f"sudo setfacl -m u:$USER:r {node}"


# Who holds the GPU.


def test_processes_with_the_device_open(
    files: MachineFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this one, and those whose files may not be seen."""
    files.process(30, "/usr/bin/nv-hostengine -n", "nvidia0")
    files.process(4, "/usr/bin/python worker.py", "nvidia0")
    files.process(5, "/usr/bin/python worker.py", "nvidia1")
    files.process(6, "sleep 9")
    (files.process(9, "kworker", "nvidia0") / "cmdline").write_bytes(b"")
    files.process(os.getpid(), "migrator gpu doctor", "nvidia0")
    hidden = files.process(8, "secret", "nvidia0")
    listing = Path.iterdir

    def refused(path: Path) -> object:
        if path == hidden / "fd":
            raise PermissionError
        return listing(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    holders = [Holder(4, "python"), Holder(9, "kworker"), Holder(30, "nv-hostengine")]
    assert files.machine.holders(0) == (holders, 1)


FINE = [(Severity.OK, None)]


def verdicts(checks: Iterable[Check]) -> list[tuple[Severity, str | None]]:
    return [(check.severity, check.run) for check in checks]


def test_what_holders_mean() -> None:
    assert verdicts(holder_checks([], 0)) == FINE
    assert verdicts(holder_checks([Holder(1, "nvidia-persistenced")], 3)) == FINE
    busy = [Holder(1, "nv-hostengine"), Holder(2, "Xorg"), Holder(3, "python")]
    checks = [*holder_checks(busy, hidden=0)]
    assert verdicts(checks) == [
        (Severity.WARNING, "sudo systemctl stop nvidia-dcgm"),
        (Severity.WARNING, "sudo systemctl isolate multi-user"),
        (Severity.OK, None),
    ]
    assert "nv-hostengine (process 1)" in checks[0].message


# Other programs that manage GPUs.


def test_what_must_not_manage_the_same_gpu(files: MachineFiles) -> None:
    assert verdicts(manager_checks(files.machine)) == FINE
    files.process(5, "/usr/bin/nvidia-mig-manager")
    files.process(6, "nvidia-device-plugin --mig-strategy=none")
    files.process(7, "vGPUmonitor")
    files.process(8, "vim nvidia-mig-manager")
    files.process(9, "gpu-kubelet-plugin")
    checks = [*manager_checks(files.machine)]
    assert verdicts(checks) == [
        (
            Severity.PROBLEM,
            "kubectl label node NODE --overwrite nvidia.com/gpu.deploy.mig-manager=false",
        ),
        (
            Severity.WARNING,
            "kubectl label node NODE --overwrite nvidia.com/gpu.deploy.device-plugin=false",
        ),
        (Severity.PROBLEM, "kubectl label node NODE --overwrite gpu-"),
        (
            Severity.WARNING,
            "kubectl get daemonset -A | grep kubelet-plugin  # its nodeSelector must exclude NODE",
        ),
    ]
    assert "nvidia-mig-manager (process 5): NVIDIA's MIG manager" in checks[0].message


def test_a_layout_that_is_applied_at_boot_and_what_a_pod_cannot_see(tmp_path: Path) -> None:
    pod = MachineFiles(tmp_path / "pod")
    (pod.root / "var/run/secrets/kubernetes.io").mkdir(parents=True)
    (unseen,) = manager_checks(Machine(pod.root))
    assert unseen.severity is Severity.WARNING
    assert "a pod does not see" in unseen.message
    bare = MachineFiles(tmp_path / "bare")
    unit = bare.root / "etc/systemd/system/multi-user.target.wants/nvidia-mig-manager.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    (boots,) = manager_checks(Machine(bare.root))
    assert boots.run == "sudo systemctl disable --now nvidia-mig-manager"


# MPS daemons.


def test_mps_daemons_by_their_pipe_directory(files: MachineFiles) -> None:
    files.process(5, "nvidia-cuda-mps-control -d", CUDA_MPS_PIPE_DIRECTORY="/x/pipe", HOME="/")
    files.process(6, "nvidia-cuda-mps-control -d", HOME="/")
    (files.process(7, "nvidia-cuda-mps-control -d") / "environ").unlink()
    files.process(8, "nvidia-cuda-mps-server", CUDA_MPS_PIPE_DIRECTORY="/x/pipe")
    assert files.machine.mps_daemons() == {5: "/x/pipe", 6: "/tmp/nvidia-mps", 7: None}


def test_daemons_of_ours_and_of_others(files: MachineFiles, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert verdicts(mps_checks(state, files.machine)) == FINE
    ours = state / "mps-12345678" / "pipe"
    files.process(5, "nvidia-cuda-mps-control -d", CUDA_MPS_PIPE_DIRECTORY=str(ours))
    (left,) = mps_checks(state, files.machine)
    assert left.severity is Severity.WARNING
    assert left.run == f"echo quit | CUDA_MPS_PIPE_DIRECTORY={ours} nvidia-cuda-mps-control"
    ours.parent.mkdir(parents=True)
    (ours.parent / "shares.json").write_text("damaged", "utf-8")
    assert verdicts(mps_checks(state, files.machine)) == FINE
    files.process(6, "nvidia-cuda-mps-control -d", HOME="/")
    other = [*mps_checks(state, files.machine)][-1]
    assert other.severity is Severity.WARNING
    assert "another program" in other.message


def test_a_daemon_without_shares_while_the_gpu_is_locked(
    files: MachineFiles, tmp_path: Path
) -> None:
    """The profiler's: it keeps the GPU's lock as long as it measures."""
    state = tmp_path / "state"
    state.mkdir()
    ours = state / "profile-12345678" / "pipe"
    files.process(5, "nvidia-cuda-mps-control -d", CUDA_MPS_PIPE_DIRECTORY=str(ours))
    lock = GpuLock(state, "GPU-12345678-0000")
    lock.acquire()
    (at_work,) = mps_checks(state, files.machine, lock)
    assert at_work.severity is Severity.OK
    assert f"process {os.getpid()}" in at_work.message
    lock.release()
    (left,) = mps_checks(state, files.machine, lock)
    assert left.severity is Severity.WARNING


def test_shares_whose_daemon_is_dead(files: MachineFiles, tmp_path: Path) -> None:
    file = BoardFile(tmp_path / "state" / "mps-12345678" / "shares.json")
    file.path.parent.mkdir(parents=True)
    share = Share(Place(0, "1g.18gb"), 1, "MPS-1")
    file.replace(BoardState("H200-141GB", boot_id(), (share,)))
    (dead,) = mps_checks(tmp_path / "state", files.machine)
    assert dead.severity is Severity.WARNING
    assert "their daemon does not run" in dead.message
    folder = f"--state {tmp_path / 'state'}"
    assert dead.run == f"migrator gpu clear --driver mps --gpu INDEX {folder}"
    gpu = replace(gpu_of(), uuid="GPU-12345678-9")
    (dead,) = mps_checks(tmp_path / "state", files.machine, gpu=gpu)
    assert dead.run == f"migrator gpu clear --driver mps --gpu 1 {folder}"
    pipes = file.path.parent / "pipe"
    files.process(5, "nvidia-cuda-mps-control -d", CUDA_MPS_PIPE_DIRECTORY=str(pipes))
    assert verdicts(mps_checks(tmp_path / "state", files.machine)) == FINE
    file.replace(BoardState("H200-141GB", "another boot", (share,)))
    (left,) = mps_checks(tmp_path / "state", files.machine)
    assert "left behind" in left.message


# Compute mode.


@pytest.mark.parametrize(
    ("mode", "severity"),
    [
        (None, Severity.OK),
        ("Default", Severity.OK),
        ("Exclusive_Process", Severity.WARNING),
        ("Prohibited", Severity.PROBLEM),
    ],
)
def test_compute_modes(mode: str | None, severity: Severity) -> None:
    check = compute_mode_check(2, mode)
    assert check.severity is severity
    assert (check.run == "sudo nvidia-smi -i 2 -c DEFAULT") == (severity is not Severity.OK)


# On an emulated GPU.

PLACE = Place(4, "3g.20gb")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.db") as opened:
        yield opened


def gpu_of(*, divides: bool = True) -> Gpu:
    return Gpu(1, "GPU-1", "NVIDIA A100", board("A100-40GB"), "boot", "550.54", divides, "mig")


def checks_of(state: Path, name: str) -> list[Check]:
    return [check for check in examine("emulated", 0, state) if check.name == name]


def worst(checks: list[Check]) -> Severity:
    return max((check.severity for check in checks), key=list(Severity).index)


def test_a_new_gpu_is_sound_and_no_journal_is_made(tmp_path: Path) -> None:
    assert worst([*examine("emulated", 0, tmp_path)]) is Severity.OK
    assert not (tmp_path / "journal.db").exists()


@pytest.mark.parametrize("is_change", [True, False])
def test_what_was_begun_and_never_finished(
    tmp_path: Path, journal: Journal, is_change: bool
) -> None:
    gpu = EmulatedDriver(tmp_path).gpu()
    if is_change:
        journal.begin_change(gpu, "migrator", (), (PLACE,))
    else:
        journal.begin_create(gpu, "migrator", PLACE)
    (check,) = checks_of(tmp_path, "journal")
    assert check.severity is Severity.WARNING
    assert "never finished" in check.message
    command = f"migrator gpu apply LAYOUT --driver emulated --gpu 0 --state {tmp_path}"
    assert check.run == command


def test_damaged_journals_that_were_kept_aside(tmp_path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"journal.db.damaged-20261115T120000Z{suffix}").touch()
    checks = checks_of(tmp_path, "journal")
    assert [check.severity for check in checks] == [Severity.OK, Severity.WARNING]
    assert "damaged-20261115T120000Z" in checks[1].message


def test_a_damaged_journal_is_a_problem_and_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"no database" * 100)
    (check,) = checks_of(tmp_path, "journal")
    assert check.severity is Severity.PROBLEM
    assert "the journal is damaged" in check.message
    assert [path.name for path in tmp_path.iterdir()] == ["journal.db"]


def test_nothing_is_changed(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db") as journal:
        journal.begin_create(EmulatedDriver(tmp_path).gpu(), "migrator", PLACE)
    EmulatedDriver(tmp_path, pace=0).create(PLACE)
    GpuLock.of(EmulatedDriver(tmp_path).gpu(), tmp_path).acquire()
    before = {path: path.stat() for path in tmp_path.rglob("*")}
    examine("emulated", 0, tmp_path)
    now = {path: path.stat() for path in tmp_path.rglob("*")}
    assert now.keys() == before.keys()
    assert all(now[path].st_mtime_ns == before[path].st_mtime_ns for path in now)


def test_whose_the_instances_are(journal: Journal, tmp_path: Path) -> None:
    gpu = gpu_of()
    mine = GpuInstance(PLACE, 2, "MIG-2", (Holder(7, "python"),))
    other = GpuInstance(Place(0, "1g.5gb"), 9, "MIG-9")
    journal.begin_create(gpu, "migrator", PLACE)
    (check,) = instance_checks(gpu, [other, mine], journal.entries(gpu), tmp_path)
    assert check.message == "1 ours (1 in use), 1 not ours"
    (none,) = instance_checks(gpu, [], (), tmp_path)
    assert none.message == "none"


def test_half_made_instances_of_ours_and_of_others(journal: Journal, tmp_path: Path) -> None:
    gpu = gpu_of()
    half = GpuInstance(PLACE, 2, None)
    _, theirs = instance_checks(gpu, [half], (), tmp_path)
    assert theirs.severity is Severity.PROBLEM
    assert theirs.run == "sudo nvidia-smi mig -i 1 -dgi -gi 2"
    journal.begin_create(gpu, "migrator", PLACE)
    _, ours = instance_checks(gpu, [half], journal.entries(gpu), tmp_path)
    assert ours.severity is Severity.WARNING
    assert ours.run == f"migrator gpu clear --driver mig --gpu 1 --state {tmp_path}"


def test_without_nvml_the_other_checks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "proc").mkdir()
    checks = examine("mps", 0, tmp_path, machine=Machine(tmp_path))
    assert {check.name: check.severity for check in checks} == {
        "state folder": Severity.OK,
        "driver": Severity.PROBLEM,
        "held by": Severity.OK,
        "MPS": Severity.OK,
        "manager": Severity.OK,
        "compute mode": Severity.OK,
    }
