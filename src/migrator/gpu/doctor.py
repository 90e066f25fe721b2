"""What stands between an operator and a divided GPU: checks, each with the command to run.

`migrator gpu doctor` prints them. Nothing is changed, on the GPU or on disk, and nothing that is
missing is an error here: it is what is told.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from migrator.core.errors import MigratorError
from migrator.gpu.change import by_hand
from migrator.gpu.check import Check, Verdict
from migrator.gpu.deed import Change, Deed, State, alive
from migrator.gpu.driver import Gpu, GpuInstance, Holder
from migrator.gpu.drivers import opened
from migrator.gpu.journal import Journal
from migrator.gpu.lock import GpuLock
from migrator.gpu.machine import Machine
from migrator.gpu.machine_checks import (
    capability_check,
    compute_mode_check,
    holder_checks,
    mps_checks,
)
from migrator.gpu.mig import MigDriver
from migrator.gpu.mps import DAEMON_OWNER, daemon_name
from migrator.gpu.names import Driver
from migrator.gpu.nvidia_smi import compute_mode
from migrator.gpu.survey import journal_path

Checks = Iterator[Check]


def examined(
    driver: str,
    index: int,
    state: Path,
    *,
    board: str | None = None,
    machine: Machine | None = None,
) -> tuple[Check, ...]:
    """Everything there is to say about this GPU under this driver."""
    checks = [*_state_folder(state)]
    holders: set[Holder] = set()
    lock: GpuLock | None = None
    try:
        with opened(driver, index, state=state, board=board) as divided:
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


def _board(driver: str, gpu: Gpu, instances: Sequence[GpuInstance], state: Path) -> Checks:
    version = "" if gpu.driver_version == driver else f", version {gpu.driver_version}"
    yield Check("driver", Verdict.OK, f"{driver}{version}")
    words = f"GPU {gpu.index}: {gpu.name}, board {gpu.board.name}, {gpu.uuid}"
    yield Check("gpu", Verdict.OK, words)
    yield mode_check(driver, gpu)
    deeds: tuple[Deed, ...] = ()
    try:
        deeds, unfinished = _written(gpu, state)
    except MigratorError as error:
        yield Check("journal", Verdict.PROBLEM, str(error), f"ls -la {state}")
    else:
        yield _journal(deeds, unfinished, GpuLock.of(gpu, state))
    yield from instance_checks(driver, gpu, instances, deeds)


def _written(gpu: Gpu, state: Path) -> tuple[tuple[Deed, ...], tuple[Change, ...]]:
    """What the journal says of this GPU; it is left as it is, damaged or missing."""
    with Journal(journal_path(state), looking=True) as journal:
        return journal.deeds(gpu), journal.unfinished(gpu)


def mode_check(driver: str, gpu: Gpu) -> Check:
    """Whether instances can be created now."""
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
    driver: str, gpu: Gpu, instances: Sequence[GpuInstance], deeds: Sequence[Deed]
) -> Checks:
    """What is on the board: whose, how many in use, and those that nobody can ever use."""
    ours = [each for each in instances if any(deed.is_about(each) for deed in alive(deeds))]
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
    command = by_hand(gpu, instance)
    mend_theirs = f"sudo {command}" if command else None
    return Check(name, Verdict.PROBLEM, f"{words}; it is not ours and stays", mend_theirs)


def _unknown_shares(gpu: Gpu, shares: Sequence[GpuInstance]) -> Checks:
    """MPS shares are nobody's but ours: those that the journal has lost are never cleared."""
    if gpu.driver == Driver.MPS and shares:
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


def _journal(deeds: Sequence[Deed], unfinished: Sequence[Change], lock: GpuLock) -> Check:
    if holder := lock.holder():
        return Check("journal", Verdict.WARNING, f"the GPU is being changed by {holder}")
    if unfinished or any(each.state is State.BEGUN for each in deeds):
        words = "a change was begun and never finished; the next one finishes or undoes it"
        return Check("journal", Verdict.WARNING, words, "migrator gpu apply LAYOUT")
    return Check("journal", Verdict.OK, f"sound; instances it knows of: {len(alive(deeds))}")


def _kept_aside(state: Path) -> Checks:
    name = journal_path(state).name
    for each in sorted([*state.glob(f"{name}.damaged-*"), *state.glob(f"{name}.older-*")]):
        if each.name.endswith(("-wal", "-shm")):
            continue
        kind = "a damaged one" if ".damaged-" in each.name else "one of an older MIGRator"
        words = f"{kind} was kept aside as {each}: what it knew counts as not ours now"
        yield Check("journal", Verdict.WARNING, words, f"rm {each}*")


def _state_folder(state: Path) -> Checks:
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
) -> Checks:
    if driver == "mig":
        yield capability_check(machine)
    found = machine.holders(index)
    pids = {each.pid for each in found.seen}
    also = [each for each in holders if each.pid not in pids]
    yield from holder_checks(sorted([*found.seen, *also]), found.hidden)
    yield from mps_checks(state, machine, lock)
    yield compute_mode_check(index, compute_mode(index))
