"""Checks of what surrounds a GPU: rights, processes, MPS daemons, compute mode; for `doctor.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from migrator.core.errors import MigratorError
from migrator.gpu.check import Check, Verdict
from migrator.gpu.driver import Holder
from migrator.gpu.lock import GpuLock
from migrator.gpu.machine import Machine, MpsDaemon
from migrator.gpu.mps import SHARES
from migrator.gpu.processes import boot_id
from migrator.gpu.virtual_state import StateFile

HARMLESS = ("nvidia-persistenced",)
"""They hold the GPU's device and never an instance."""
WATCHERS = {
    "nv-hostengine": "sudo systemctl stop nvidia-dcgm",
    "dcgm-exporter": "sudo systemctl stop dcgm-exporter",
    "nvidia-dcgm": "sudo systemctl stop nvidia-dcgm",
}
"""DCGM and what comes with it: a handle of theirs keeps instances in use without a process."""
DISPLAYS = ("Xorg", "X", "Xwayland", "gnome-shell", "gdm-x-session", "kwin_wayland", "sddm")

Checks = Iterator[Check]


def capability_check(machine: Machine) -> Check:
    """Whether this user may create and destroy instances."""
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


def holder_checks(holders: Sequence[Holder], hidden: int) -> Checks:
    """Who has the GPU's device open, and what that means."""
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


def mps_checks(state: Path, machine: Machine, gpu_lock: GpuLock | None = None) -> Checks:
    """MPS control daemons: ours by their pipe directory, and those of others.

    `gpu_lock`: whoever holds it, a profiler for example, may have a daemon without shares.
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


def _our_daemon(daemon: MpsDaemon, pipes: Path, gpu_lock: GpuLock | None) -> Check:
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
    """Default is what several workers on one GPU need."""
    name, mend = "compute mode", f"sudo nvidia-smi -i {index} -c DEFAULT"
    if mode is None:
        return Check(name, Verdict.OK, "not told (no nvidia-smi)")
    if mode == "Default":
        return Check(name, Verdict.OK, mode)
    verdict = Verdict.PROBLEM if mode == "Prohibited" else Verdict.WARNING
    return Check(name, verdict, f"{mode}: workers cannot share the GPU as planned", mend)


def _has_shares(path: Path) -> bool:
    try:
        shares = StateFile(path).read()
    except MigratorError:
        return True  # damaged: nobody can say that there are none
    # those of another boot are gone
    return shares is not None and shares.boot_id == boot_id() and bool(shares.instances)
