"""Checks of whether a GPU can be divided, each with a command that fixes or explains a problem.

`migrator gpu doctor` prints them. The checks change nothing on the GPU or on disk. A missing
component is reported as the result of a check and not raised as an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from shlex import quote

from migrator.core.errors import MigratorError
from migrator.gpu.drivers.base import DriverKind, Gpu, GpuInstance, Holder
from migrator.gpu.drivers.mig import MigDriver
from migrator.gpu.drivers.mps import CONTROL, DAEMON_OWNER, PIPES, SHARES, daemon_name
from migrator.gpu.drivers.nvidia_smi import compute_mode
from migrator.gpu.drivers.registry import open_driver
from migrator.gpu.drivers.virtual_board import BoardFile
from migrator.gpu.journal import (
    EntryState,
    Journal,
    JournalEntry,
    LayoutChange,
    journal_path,
    match_entries,
)
from migrator.gpu.layout import gpu_command, removal_command
from migrator.gpu.partitioner import GpuLock
from migrator.io import processes
from migrator.io.folders import state_option
from migrator.io.processes import boot_id

MIG_CONFIG = "driver/nvidia/capabilities/mig/config"
"""Path below /proc of the capability to create and destroy instances."""
HARMLESS = ("nvidia-persistenced",)
"""Processes that open the GPU's device but never use an instance."""
WATCHERS = {
    "nv-hostengine": "sudo systemctl stop nvidia-dcgm",
    "dcgm-exporter": "sudo systemctl stop dcgm-exporter",
    "nvidia-dcgm": "sudo systemctl stop nvidia-dcgm",
}
"""DCGM processes, with the command that stops each.

An open handle of DCGM keeps an instance in use although no process runs on it.
"""
_NODE = "kubectl label node NODE --overwrite"
MIG_MANAGER, DEVICE_PLUGIN, DRA_DRIVER, HAMI = (
    *("nvidia-mig-manager", "nvidia-device-plugin", "gpu-kubelet-plugin", "vGPUmonitor"),
)
"""Programs that manage GPUs of Kubernetes nodes."""
MANAGERS = {
    MIG_MANAGER: (
        "NVIDIA's MIG manager, removes all instances to apply a layout of its own",
        f"{_NODE} nvidia.com/gpu.deploy.mig-manager=false",
    ),
    DEVICE_PLUGIN: (
        "NVIDIA's device plugin or HAMi's, gives this GPU to pods",
        f"{_NODE} nvidia.com/gpu.deploy.device-plugin=false",
    ),
    DRA_DRIVER: (
        "NVIDIA's DRA driver, gives this GPU to pods; with dynamic MIG it starts by removing all "
        "instances that it does not know",
        "kubectl get daemonset -A | grep kubelet-plugin  # its nodeSelector must exclude NODE",
    ),
    HAMI: (
        "HAMi, shares this GPU among pods and changes its MIG layout for them",
        f"{_NODE} gpu-",
    ),
}
"""What each does to the GPU that we divide, and the command that keeps it away."""
_PARTITIONING = (MIG_MANAGER, HAMI)
_BOOT_UNIT = "etc/systemd/system/multi-user.target.wants/nvidia-mig-manager.service"
_POD = "var/run/secrets/kubernetes.io"
DISPLAYS = ("Xorg", "X", "Xwayland", "gnome-shell", "gdm-x-session", "kwin_wayland", "sddm")
_DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"


class Severity(StrEnum):
    """Severity of the result of a check."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    """Result of one check, with a command that fixes the problem or shows more."""

    name: str
    severity: Severity
    message: str
    run: str | None = None


def _ok(name: str, message: str) -> Check:
    return Check(name, Severity.OK, message)


def _warning(name: str, message: str, run: str | None = None) -> Check:
    return Check(name, Severity.WARNING, message, run)


def _problem(name: str, message: str, run: str | None = None) -> Check:
    return Check(name, Severity.PROBLEM, message, run)


def examine(
    driver: str,
    index: int,
    state: Path,
    *,
    board: str | None = None,
    machine: Machine | None = None,
) -> tuple[Check, ...]:
    """All checks of one GPU under one driver."""
    checks = [_state_folder(state)]
    holders: set[Holder] = set()
    gpu: Gpu | None = None
    lock: GpuLock | None = None
    try:
        with open_driver(driver, index, state=state, board=board) as opened:
            gpu, instances = opened.gpu(), opened.instances()
            if isinstance(opened, MigDriver):
                holders.update(opened.holders())
    except MigratorError as error:
        checks.append(_problem("driver", str(error)))
    else:
        holders.update(holder for instance in instances for holder in instance.holders)
        lock = GpuLock.of(gpu, state)
        checks += _gpu_checks(driver, gpu, instances, state, lock)
    checks += _set_aside(state)
    if driver != DriverKind.EMULATED:
        machine = machine or Machine()
        if driver == DriverKind.MIG:
            checks.append(capability_check(machine))
        seen, hidden = machine.holders(index)
        pids = {holder.pid for holder in seen}
        others = [holder for holder in holders if holder.pid not in pids]
        checks += holder_checks(sorted([*seen, *others]), hidden)
        checks += mps_checks(state, machine, lock, gpu)
        checks += manager_checks(machine)
        checks.append(compute_mode_check(index, compute_mode(index)))
    return tuple(checks)


def _state_folder(state: Path) -> Check:
    if state.is_dir() and os.access(state, os.R_OK | os.W_OK | os.X_OK):
        return _ok("state folder", str(state))
    message = f"{state} cannot be written, and without a journal nothing is changed"
    return _problem("state folder", message, f"sudo chown -R $USER {quote(str(state))}")


def _gpu_checks(
    driver: str, gpu: Gpu, instances: Sequence[GpuInstance], state: Path, lock: GpuLock
) -> Iterator[Check]:
    version = "" if gpu.driver_version == driver else f", version {gpu.driver_version}"
    yield _ok("driver", f"{driver}{version}")
    yield _ok("gpu", f"GPU {gpu.index}: {gpu.name}, board {gpu.board.name}, {gpu.uuid}")
    yield mode_check(driver, gpu)
    entries: tuple[JournalEntry, ...] = ()
    try:
        # Read only: a damaged file is left as it is.
        with Journal(journal_path(state), read_only=True) as journal:
            entries, unfinished = journal.entries(gpu), journal.unfinished(gpu)
    except MigratorError as error:
        yield _problem("journal", str(error), f"ls -la {quote(str(state))}")
    else:
        yield _journal_check(entries, unfinished, lock, gpu_command("apply LAYOUT", gpu, state))
    yield from instance_checks(gpu, instances, entries, state)


def mode_check(driver: str, gpu: Gpu) -> Check:
    """Check whether instances can be created, which for the `mig` driver requires MIG mode."""
    if gpu.divides:
        return _ok("MIG mode", "on" if driver == DriverKind.MIG else "not needed by this driver")
    message = "off: no instance can be created; end what uses the GPU, then switch it on (as root)"
    return _problem("MIG mode", message, f"sudo nvidia-smi -i {gpu.index} -mig 1")


def instance_checks(
    gpu: Gpu, instances: Sequence[GpuInstance], entries: Sequence[JournalEntry], state: Path
) -> Iterator[Check]:
    """Report the instances on the board, their ownership and use, and the unusable ones."""
    ours = [instance for instance, _ in match_entries(instances, entries).values()]
    foreign = [instance for instance in instances if instance not in ours]
    used = sum(bool(instance.holders) for instance in ours)
    message = f"{len(ours)} ours ({used} in use), {len(foreign)} not ours"
    yield _ok("instances", message if instances else "none")
    for instance in instances:
        if instance.uuid is None:
            yield _half_made(gpu, instance, instance in ours, state)
    # Only MIGRator creates MPS shares, and without a journal entry they are never removed.
    if gpu.driver == DriverKind.MPS and foreign:
        places = ", ".join(str(instance.place) for instance in foreign)
        yield _warning(
            "shares",
            f"the journal does not know {places}, so nothing of ours removes them; when no worker "
            f"runs there, end their daemon and remove {daemon_name(DAEMON_OWNER, gpu.uuid)} in the "
            "state folder",
            gpu_command("show", gpu, state),
        )


def _half_made(gpu: Gpu, instance: GpuInstance, ours: bool, state: Path) -> Check:
    message = f"{instance.place} has no compute instance, so its slices cannot be used"
    if ours:
        fix = gpu_command("clear", gpu, state)
        return _warning("half-made", f"{message}; it is ours, any change removes it", fix)
    command = removal_command(gpu, instance)
    fix_foreign = f"sudo {command}" if command else None
    return _problem("half-made", f"{message}; it is not ours and stays", fix_foreign)


def _journal_check(
    entries: Sequence[JournalEntry], unfinished: Sequence[LayoutChange], lock: GpuLock, apply: str
) -> Check:
    if holder := lock.holder():
        return _warning("journal", f"the GPU is being changed by {holder}")
    if unfinished or any(entry.state is not EntryState.PRESENT for entry in entries):
        message = "a change was begun and never finished; the next one finishes or undoes it"
        return _warning("journal", message, apply)
    return _ok("journal", f"sound; instances it knows of: {len(entries)}")


def _set_aside(state: Path) -> Iterator[Check]:
    name = journal_path(state).name
    for path in sorted(state.glob(f"{name}.damaged-*")):
        if not path.name.endswith(("-wal", "-shm")):
            message = f"a damaged one was kept aside as {path}: what it knew counts as not ours now"
            yield _warning("journal", message, f"rm {quote(str(path))}*")


class Machine:
    """Processes and device files of this machine. Tests pass another `root` folder."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.proc, self.dev = root / "proc", root / "dev"
        self.in_pod = (root / _POD).exists()
        """Whether this is a pod, which sees no processes of its machine."""
        self.applies_layout_at_boot = (root / _BOOT_UNIT).exists()
        """Whether the MIG manager of systemd is enabled."""

    def capability(self) -> Path | None:
        """The device node of mig/config; None if the kernel module reports none."""
        try:
            text = (self.proc / MIG_CONFIG).read_text("ascii", errors="replace")
        except OSError:
            return None
        minor = re.search(r"DeviceFileMinor:\s*(\d+)", text)
        return minor and self.dev / "nvidia-caps" / f"nvidia-cap{minor[1]}"

    def holders(self, index: int) -> tuple[list[Holder], int]:
        """The processes that have the GPU's device file open, and the number of unreadable ones.

        Assumes that the minor number of the device is the GPU's index, which holds on every machine
        that numbers its GPUs by PCI bus.
        """
        device = str(self.dev / f"nvidia{index}")
        seen: list[Holder] = []
        hidden = 0
        for pid in self._other_processes():
            try:
                if device in processes.open_files(pid, self.proc):
                    # The kernel cuts its own record of the name at 15 characters.
                    command = processes.command_words(pid, self.proc)
                    name = command[0] if command else processes.process_name(pid, self.proc)
                    seen.append(Holder(pid, name))
            except PermissionError:
                hidden += 1
        return seen, hidden

    def mps_daemons(self) -> dict[int, str | None]:
        """The pipe directories of all MPS control daemons; None for one that may not be read."""
        daemons: dict[int, str | None] = {}
        for pid in self._other_processes():
            # An MPS server has the same short name, and an editor may have the program's name in
            # its command line.
            short = processes.process_name(pid, self.proc)
            if short == CONTROL[:15] and CONTROL in processes.command_words(pid, self.proc):
                environment = processes.process_environment(pid, self.proc)
                pipes = environment.get(PIPES, _DEFAULT_PIPE_DIRECTORY)
                daemons[pid] = pipes if environment else None
        return daemons

    def managers(self) -> dict[int, str]:
        """The processes that manage GPUs for Kubernetes, by id, with the name in `MANAGERS`."""
        managers = {}
        for pid in self._other_processes():
            command = processes.command_words(pid, self.proc)
            if command and command[0] in MANAGERS:
                managers[pid] = command[0]
        return managers

    def _other_processes(self) -> list[int]:
        return sorted(pid for pid in processes.process_ids(self.proc) if pid != os.getpid())


def capability_check(machine: Machine) -> Check:
    """Check whether this user may create and destroy instances."""
    node = machine.capability()
    if node is None:
        message = "the kernel module reports no mig/config capability; only root can be sure"
        return _warning("permission", message, "ls -l /proc/driver/nvidia/capabilities/mig")
    if not node.exists():
        command = "sudo nvidia-modprobe -f /proc/driver/nvidia/capabilities/mig/config"
        return _problem("permission", f"{node} is missing, no user can create instances", command)
    if not os.access(node, os.R_OK):
        message = f"{node} cannot be read by this user, who may not create instances"
        return _problem("permission", message, f"sudo setfacl -m u:$USER:r {node}")
    return _ok("permission", f"{node} can be read: instances may be created")


def holder_checks(holders: Sequence[Holder], hidden: int) -> Iterator[Check]:
    """Report the processes that have the GPU's device open, and the consequence of each."""
    others = [holder for holder in holders if holder.name not in HARMLESS]
    for other in others:
        if other.name in WATCHERS:
            message = f"{other} watches the GPU; its handle can keep an instance in use"
            yield _warning("held by", message, WATCHERS[other.name])
        elif other.name in DISPLAYS:
            message = f"{other} draws on the GPU; MIG mode cannot be switched on while it runs"
            yield _warning("held by", message, "sudo systemctl isolate multi-user")
        else:
            yield _ok("held by", f"{other} uses the GPU; its instance stays until it has ended")
    if not others:
        yield _ok("held by", "no process" + (" that this user can see" if hidden else ""))


def mps_checks(
    state: Path, machine: Machine, gpu_lock: GpuLock | None = None, gpu: Gpu | None = None
) -> Iterator[Check]:
    """Report MPS control daemons: MIGRator's, recognised by their pipe directory, and others.

    The holder of `gpu_lock`, for example a profiler, may run a daemon without shares.
    """
    daemons = machine.mps_daemons()
    served = set()
    for pid, folder in daemons.items():
        if folder is not None and Path(folder).is_relative_to(state.absolute()):
            served.add(Path(folder).parent)
            yield _our_daemon(pid, Path(folder), gpu_lock)
        else:
            where = folder or "unseen"
            message = f"a daemon of another program (process {pid}, pipes {where}); left alone"
            yield _warning("MPS", message, f"ps -o user,lstart,cmd -p {pid}")
    shares = sorted(state.absolute().glob(f"*/{SHARES}"))
    dead = [share for share in shares if share.parent not in served and _has_shares(share)]
    for path in dead:
        is_this = gpu is not None and path.parent.name == daemon_name(DAEMON_OWNER, gpu.uuid)
        index = gpu.index if gpu is not None and is_this else "INDEX"
        yield _warning(
            "MPS",
            f"there are shares in {path.parent} and their daemon does not run; the next worker "
            "that is given one starts it, or remove them",
            f"migrator gpu clear --driver mps --gpu {index}{state_option(state)}",
        )
    if not daemons and not dead:
        yield _ok("MPS", "no daemon runs")


def _our_daemon(pid: int, pipes: Path, gpu_lock: GpuLock | None) -> Check:
    ours = f"our daemon (process {pid})"
    if _has_shares(pipes.parent / SHARES):
        return _ok("MPS", f"{ours} runs for the shares there are")
    if gpu_lock and (holder := gpu_lock.holder()):
        return _ok("MPS", f"{ours} runs for {holder}")
    command = f"echo quit | CUDA_MPS_PIPE_DIRECTORY={pipes} nvidia-cuda-mps-control"
    return _warning("MPS", f"{ours} was left behind without shares", command)


def _has_shares(path: Path) -> bool:
    try:
        shares = BoardFile(path).read()
    except MigratorError:
        return True  # damaged: there may be shares
    # Shares do not survive a reboot.
    return shares is not None and shares.boot_id == boot_id() and bool(shares.instances)


def manager_checks(machine: Machine) -> Iterator[Check]:
    """Report programs that must not manage the same GPU."""
    managers = machine.managers()
    for pid, name in managers.items():
        does, command = MANAGERS[name]
        severity = Severity.PROBLEM if name in _PARTITIONING else Severity.WARNING
        yield Check("manager", severity, f"{name} (process {pid}): {does}", command)
    if machine.applies_layout_at_boot:
        yield _warning(
            "manager",
            "nvidia-mig-manager.service applies a layout of its own at every boot",
            "sudo systemctl disable --now nvidia-mig-manager",
        )
    elif not managers and machine.in_pod:
        yield _warning(
            "manager",
            "a pod does not see what else manages the GPU of its machine; exclude the machine from "
            "NVIDIA's device plugin, its MIG manager, the DRA driver and HAMi",
            "kubectl get pods -A --field-selector spec.nodeName=NODE",
        )
    elif not managers:
        yield _ok("manager", "no other program manages GPUs here")


def compute_mode_check(index: int, mode: str | None) -> Check:
    """Check the compute mode, which has to be Default for several workers to share the GPU."""
    if mode in (None, "Default"):
        return _ok("compute mode", mode or "unknown (no nvidia-smi)")
    severity = Severity.PROBLEM if mode == "Prohibited" else Severity.WARNING
    message = f"{mode}: workers cannot share the GPU as planned"
    return Check("compute mode", severity, message, f"sudo nvidia-smi -i {index} -c DEFAULT")
