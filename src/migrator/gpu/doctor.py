"""Checks of whether a GPU can be divided, each with a command that fixes or explains a problem.

`migrator gpu doctor` prints them. The checks change nothing on the GPU or on disk. A missing
component is reported as the result of a check and not raised as an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from migrator.core.errors import MigratorError
from migrator.gpu.drivers.base import DriverKind, Gpu, GpuInstance, Holder
from migrator.gpu.drivers.mig import MigDriver
from migrator.gpu.drivers.mps import DAEMON_OWNER, SHARES, daemon_name
from migrator.gpu.drivers.mps_daemon import CONTROL, PIPES
from migrator.gpu.drivers.nvidia_smi import compute_mode
from migrator.gpu.drivers.registry import open_driver
from migrator.gpu.drivers.virtual_board import BoardFile
from migrator.gpu.journal.entries import EntryState, JournalEntry, LayoutChange, live_creates
from migrator.gpu.journal.journal import Journal, journal_path
from migrator.gpu.lock import GpuLock
from migrator.gpu.partition.steps import removal_command
from migrator.io import processes
from migrator.io.processes import boot_id


def examine(
    driver: str,
    index: int,
    state: Path,
    *,
    board: str | None = None,
    machine: Machine | None = None,
) -> tuple[Check, ...]:
    """All checks of one GPU under one driver."""
    checks = [*_state_folder(state)]
    holders: set[Holder] = set()
    lock: GpuLock | None = None
    try:
        with open_driver(driver, index, state=state, board=board) as divided:
            gpu, instances = divided.gpu(), divided.instances()
            if isinstance(divided, MigDriver):
                holders.update(divided.holders())
    except MigratorError as error:
        checks.append(Check("driver", Verdict.PROBLEM, str(error)))
    else:
        holders.update(holder for each in instances for holder in each.holders)
        lock = GpuLock.of(gpu, state)
        checks += _board(driver, gpu, instances, state)
    checks += _kept_aside(state)
    if driver != "emulated":
        checks += _surroundings(driver, index, holders, state, machine or Machine(), lock)
    return tuple(checks)


def _board(driver: str, gpu: Gpu, instances: Sequence[GpuInstance], state: Path) -> Iterator[Check]:
    version = "" if gpu.driver_version == driver else f", version {gpu.driver_version}"
    yield Check("driver", Verdict.OK, f"{driver}{version}")
    words = f"GPU {gpu.index}: {gpu.name}, board {gpu.board.name}, {gpu.uuid}"
    yield Check("gpu", Verdict.OK, words)
    yield mode_check(driver, gpu)
    deeds: tuple[JournalEntry, ...] = ()
    try:
        deeds, unfinished = _written(gpu, state)
    except MigratorError as error:
        yield Check("journal", Verdict.PROBLEM, str(error), f"ls -la {state}")
    else:
        yield _journal(deeds, unfinished, GpuLock.of(gpu, state))
    yield from instance_checks(driver, gpu, instances, deeds)


def _written(gpu: Gpu, state: Path) -> tuple[tuple[JournalEntry, ...], tuple[LayoutChange, ...]]:
    """The journal's entries and unfinished changes of this GPU. A damaged file is left as it is."""
    with Journal(journal_path(state), read_only=True) as journal:
        return journal.entries(gpu), journal.unfinished(gpu)


def mode_check(driver: str, gpu: Gpu) -> Check:
    """Check whether instances can be created, which for the `mig` driver requires MIG mode."""
    if gpu.divides:
        words = "on" if driver == "mig" else "not needed by this driver"
        return Check("MIG mode", Verdict.OK, words)
    return Check(
        "MIG mode",
        Verdict.PROBLEM,
        "off: no instance can be created; end what uses the GPU, then switch it on (as root)",
        f"sudo nvidia-smi -i {gpu.index} -mig 1",
    )


def instance_checks(
    driver: str, gpu: Gpu, instances: Sequence[GpuInstance], deeds: Sequence[JournalEntry]
) -> Iterator[Check]:
    """Report the instances on the board, their ownership and use, and the unusable ones."""
    ours = [each for each in instances if any(deed.is_about(each) for deed in live_creates(deeds))]
    used = sum(bool(each.holders) for each in ours)
    words = f"{len(ours)} ours ({used} in use), {len(instances) - len(ours)} not ours"
    yield Check("instances", Verdict.OK, words if instances else "none")
    yield from (
        _half_made(driver, gpu, each, each in ours) for each in instances if each.uuid is None
    )
    yield from _unknown_shares(gpu, [each for each in instances if each not in ours])


def _half_made(driver: str, gpu: Gpu, instance: GpuInstance, ours: bool) -> Check:
    name = "half-made"
    words = f"{instance.place} has no compute instance, so its slices are lost to everybody"
    if ours:
        mend = f"migrator gpu clear --driver {driver} --gpu {gpu.index}"
        return Check(name, Verdict.WARNING, f"{words}; it is ours, any change removes it", mend)
    command = removal_command(gpu, instance)
    mend_theirs = f"sudo {command}" if command else None
    return Check(name, Verdict.PROBLEM, f"{words}; it is not ours and stays", mend_theirs)


def _unknown_shares(gpu: Gpu, shares: Sequence[GpuInstance]) -> Iterator[Check]:
    """Warn about MPS shares that the journal does not list.

    Only MIGRator creates such shares, and without a journal entry they are never removed.
    """
    if gpu.driver == DriverKind.MPS and shares:
        places = ", ".join(str(each.place) for each in shares)
        words = f"the journal does not know {places}, so nothing of ours removes them"
        folder = daemon_name(DAEMON_OWNER, gpu.uuid)
        yield Check(
            "shares",
            Verdict.WARNING,
            f"{words}; when no worker runs there, end their daemon and remove {folder} in the "
            "state folder",
            f"migrator gpu show --driver {gpu.driver} --gpu {gpu.index}",
        )


def _journal(
    deeds: Sequence[JournalEntry], unfinished: Sequence[LayoutChange], lock: GpuLock
) -> Check:
    if holder := lock.holder():
        return Check("journal", Verdict.WARNING, f"the GPU is being changed by {holder}")
    if unfinished or any(each.state is EntryState.BEGUN for each in deeds):
        words = "a change was begun and never finished; the next one finishes or undoes it"
        return Check("journal", Verdict.WARNING, words, "migrator gpu apply LAYOUT")
    return Check("journal", Verdict.OK, f"sound; instances it knows of: {len(live_creates(deeds))}")


def _kept_aside(state: Path) -> Iterator[Check]:
    name = journal_path(state).name
    for each in sorted([*state.glob(f"{name}.damaged-*"), *state.glob(f"{name}.older-*")]):
        if each.name.endswith(("-wal", "-shm")):
            continue
        kind = "a damaged one" if ".damaged-" in each.name else "one of an older MIGRator"
        words = f"{kind} was kept aside as {each}: what it knew counts as not ours now"
        yield Check("journal", Verdict.WARNING, words, f"rm {each}*")


def _state_folder(state: Path) -> Iterator[Check]:
    if state.is_dir() and os.access(state, os.R_OK | os.W_OK | os.X_OK):
        yield Check("state folder", Verdict.OK, str(state))
    else:
        yield Check(
            "state folder",
            Verdict.PROBLEM,
            f"{state} cannot be written, and without a journal nothing is changed",
            f"sudo chown -R $USER {state}",
        )


def _surroundings(
    driver: str,
    index: int,
    holders: Collection[Holder],
    state: Path,
    machine: Machine,
    lock: GpuLock | None,
) -> Iterator[Check]:
    if driver == "mig":
        yield capability_check(machine)
    found = machine.holders(index)
    pids = {each.pid for each in found.seen}
    also = [each for each in holders if each.pid not in pids]
    yield from holder_checks(sorted([*found.seen, *also]), found.hidden)
    yield from mps_checks(state, machine, lock)
    yield compute_mode_check(index, compute_mode(index))


class Verdict(StrEnum):
    """Severity of the result of a check."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    """Result of one check, with a command that fixes the problem or shows more."""

    name: str
    verdict: Verdict
    words: str
    run: str | None = None


MIG_CONFIG = "driver/nvidia/capabilities/mig/config"
"""Path below /proc of the capability to create and destroy instances."""

_DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"


@dataclass(frozen=True)
class Capability:
    """Device node that lets users with read permission create and destroy instances."""

    node: Path
    exists: bool
    readable: bool


@dataclass(frozen=True)
class Holders:
    """Processes that have a GPU's device open, and the number of unreadable processes."""

    seen: tuple[Holder, ...]
    hidden: int


@dataclass(frozen=True)
class RunningMpsDaemon:
    """A running MPS control daemon; the pipe directory is None if it may not be read."""

    pid: int
    pipe_directory: str | None


class Machine:
    """This machine. Tests pass another `root` folder."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.proc, self.dev = root / "proc", root / "dev"

    def capability(self) -> Capability | None:
        """The device node of mig/config; None if the kernel module reports none."""
        try:
            told = (self.proc / MIG_CONFIG).read_text("ascii", errors="replace")
        except OSError:
            return None
        minor = re.search(r"DeviceFileMinor:\s*(\d+)", told)
        if minor is None:
            return None
        node = self.dev / "nvidia-caps" / f"nvidia-cap{minor[1]}"
        return Capability(node, node.exists(), os.access(node, os.R_OK))

    def holders(self, index: int) -> Holders:
        """The processes that have the GPU's device file open, except this one.

        Assumes that the minor number of the device is the GPU's index, which holds on every machine
        that numbers its GPUs by PCI bus.
        """
        device = str(self.dev / f"nvidia{index}")
        seen: list[Holder] = []
        hidden = 0
        for pid in self._others():
            try:
                opened = device in processes.open_files(pid, self.proc)
            except PermissionError:
                hidden += 1
                continue
            if opened:
                seen.append(Holder(pid, self._command(pid)))
        return Holders(tuple(seen), hidden)

    def mps_daemons(self) -> tuple[RunningMpsDaemon, ...]:
        """All MPS control daemons, including those of other programs."""
        return tuple(
            RunningMpsDaemon(pid, self._pipe_directory(pid))
            for pid in self._others()
            if self._is_control(pid)
        )

    def _others(self) -> list[int]:
        return sorted(pid for pid in processes.process_ids(self.proc) if pid != os.getpid())

    def _command(self, pid: int) -> str:
        """The program's name from the command line.

        The kernel cuts its own record of the name at 15 characters.
        """
        words = processes.command_words(pid, self.proc)
        return words[0] if words else processes.process_name(pid, self.proc)

    def _is_control(self, pid: int) -> bool:
        # An MPS server has the same short name, and an editor may have the program's name in its
        # command line.
        short = processes.process_name(pid, self.proc)
        return short == CONTROL[:15] and CONTROL in processes.command_words(pid, self.proc)

    def _pipe_directory(self, pid: int) -> str | None:
        told = processes.process_environment(pid, self.proc)
        return told.get(PIPES, _DEFAULT_PIPE_DIRECTORY) if told else None


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
DISPLAYS = ("Xorg", "X", "Xwayland", "gnome-shell", "gdm-x-session", "kwin_wayland", "sddm")


def capability_check(machine: Machine) -> Check:
    """Check whether this user may create and destroy instances."""
    found = machine.capability()
    name = "permission"
    if found is None:
        words = "the kernel module tells of no mig/config capability; only root can be sure"
        return Check(name, Verdict.WARNING, words, "ls -l /proc/driver/nvidia/capabilities/mig")
    if not found.exists:
        return Check(
            name,
            Verdict.PROBLEM,
            f"{found.node} is missing, nobody can create instances",
            "sudo nvidia-modprobe -f /proc/driver/nvidia/capabilities/mig/config",
        )
    if not found.readable:
        return Check(
            name,
            Verdict.PROBLEM,
            f"{found.node} cannot be read by this user, who may not create instances",
            f"sudo setfacl -m u:$USER:r {found.node}",
        )
    return Check(name, Verdict.OK, f"{found.node} can be read: instances may be created")


def holder_checks(holders: Sequence[Holder], hidden: int) -> Iterator[Check]:
    """Report the processes that have the GPU's device open, and the consequence of each."""
    others = [each for each in holders if each.name not in HARMLESS]
    for each in others:
        if each.name in WATCHERS:
            words = f"{each} watches the GPU; its handle can keep an instance in use"
            yield Check("held by", Verdict.WARNING, words, WATCHERS[each.name])
        elif each.name in DISPLAYS:
            words = f"{each} draws on the GPU; MIG mode cannot be switched on while it runs"
            yield Check("held by", Verdict.WARNING, words, "sudo systemctl isolate multi-user")
        else:
            words = f"{each} uses the GPU; its instance stays until it has ended"
            yield Check("held by", Verdict.OK, words)
    if not others:
        yield Check("held by", Verdict.OK, "nobody" + (" that this user can see" if hidden else ""))


def mps_checks(state: Path, machine: Machine, gpu_lock: GpuLock | None = None) -> Iterator[Check]:
    """Report MPS control daemons: MIGRator's, recognised by their pipe directory, and others.

    The holder of `gpu_lock`, for example a profiler, may run a daemon without shares.
    """
    daemons = machine.mps_daemons()
    served = set()
    for each in daemons:
        folder = each.pipe_directory
        if folder is not None and Path(folder).is_relative_to(state.absolute()):
            served.add(Path(folder).parent)
            yield _our_daemon(each, Path(folder), gpu_lock)
        else:
            where = folder or "unseen"
            words = f"a daemon of somebody else (process {each.pid}, pipes {where}); left alone"
            yield Check("MPS", Verdict.WARNING, words, f"ps -o user,lstart,cmd -p {each.pid}")
    dead = [each for each in _share_files(state) if each.parent not in served and _has_shares(each)]
    yield from map(_dead_daemon, dead)
    if not daemons and not dead:
        yield Check("MPS", Verdict.OK, "no daemon runs")


def _our_daemon(daemon: RunningMpsDaemon, pipes: Path, gpu_lock: GpuLock | None) -> Check:
    ours = f"our daemon (process {daemon.pid})"
    if _has_shares(pipes.parent / SHARES):
        return Check("MPS", Verdict.OK, f"{ours} runs for the shares there are")
    if gpu_lock and (holder := gpu_lock.holder()):
        return Check("MPS", Verdict.OK, f"{ours} runs for {holder}")
    return Check(
        "MPS",
        Verdict.WARNING,
        f"{ours} was left behind without shares",
        f"echo quit | CUDA_MPS_PIPE_DIRECTORY={pipes} nvidia-cuda-mps-control",
    )


def _dead_daemon(shares: Path) -> Check:
    words = f"there are shares in {shares.parent} and their daemon does not run"
    return Check(
        "MPS",
        Verdict.WARNING,
        f"{words}; the next worker that is given one starts it, or remove them",
        "migrator gpu clear --driver mps",
    )


def _share_files(state: Path) -> list[Path]:
    return sorted(state.absolute().glob(f"*/{SHARES}"))


def compute_mode_check(index: int, mode: str | None) -> Check:
    """Check the compute mode, which has to be Default for several workers to share the GPU."""
    name, mend = "compute mode", f"sudo nvidia-smi -i {index} -c DEFAULT"
    if mode is None:
        return Check(name, Verdict.OK, "not told (no nvidia-smi)")
    if mode == "Default":
        return Check(name, Verdict.OK, mode)
    verdict = Verdict.PROBLEM if mode == "Prohibited" else Verdict.WARNING
    return Check(name, verdict, f"{mode}: workers cannot share the GPU as planned", mend)


def _has_shares(path: Path) -> bool:
    try:
        shares = BoardFile(path).read()
    except MigratorError:
        return True  # damaged: there may be shares
    # Shares do not survive a reboot.
    return shares is not None and shares.boot_id == boot_id() and bool(shares.instances)
