"""The `mps` driver: shares of any NVIDIA GPU, of the sizes that its MIG instances would have, or
those of its board of shares (`H200-141GB-MPS`).

A virtual board decides which shares fit, so that together they never exceed the GPU. A share
without a compute instance is one whose creation or removal was interrupted.

The MPS control daemon has private folders, in which later processes find it again. It is identified
by the process id in its pipe folder and by the pipe folder in its environment, because the id alone
may belong to another process by now. MIGRator never sends commands to a daemon of another program.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

from migrator.core import catalogue
from migrator.core.catalogue import Board, MigProfile, Place
from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu.drivers import nvidia_smi
from migrator.gpu.drivers.base import (
    DriverEntry,
    DriverKind,
    DriverOptions,
    Gpu,
    GpuInstance,
    Holder,
    InUseError,
)
from migrator.gpu.drivers.mig import gpu_count
from migrator.gpu.drivers.nvidia_smi import OTHERWISE, SmiGpu
from migrator.gpu.drivers.virtual_board import INSTANCE, VirtualBoard, hold_state_lock
from migrator.io.processes import (
    command_words,
    is_running,
    process_environment,
    process_ids,
    process_name,
)

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"

_START_S, _ANSWER_S = 60.0, 10.0
"""Timeouts in seconds to start the daemon and to answer a command."""
_LONGEST = 107 - len("/control_privileged")
"""Maximum length of the pipe folder's path.

The path of a socket is limited, and the daemon creates several sockets in the folder.
"""
DAEMON_OWNER = "mps"
"""Owner name of the daemon that serves the shares. The profiler runs a daemon of its own."""
SHARES = "shares.json"
MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_PATTERN = "A100-80GB"
"""Board whose sizes and starts apply to GPUs without MIG."""


class MpsDaemon:
    """The daemon of one folder, running or not."""

    def __init__(self, folder: Path, visible: Mapping[str, str], end_s: float = 10.0) -> None:
        """`visible` selects the GPU for CUDA. `end_s` is the daemon's time to exit in seconds."""
        self.pipes, self.logs = folder.absolute() / "pipe", folder.absolute() / "log"
        self._visible, self._end_s = dict(visible), end_s
        if len(str(self.pipes)) > _LONGEST:
            raise InputError(
                f"{self.pipes}: the path is too long for the sockets of MPS ({_LONGEST} characters "
                "at most); name a shorter state folder in MIGRATOR_STATE"
            )

    @property
    def environment(self) -> dict[str, str]:
        return {**self._visible, PIPES: str(self.pipes), LOGS: str(self.logs)}

    def running(self) -> int | None:
        """The daemon's process id; None if it does not run, even if its files remain."""
        try:
            pid = int((self.pipes / f"{CONTROL}.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            pid = 0
        # If the environment cannot be read, the process name is sufficient.
        if (
            _controls(pid)
            and self._is_of(process_environment(pid) or self.environment)
            and is_running(pid)
        ):
            return pid
        return min(filter(_controls, self._left()), default=None)

    def start(self) -> None:
        """Start the daemon unless it runs, and remove the files that a killed daemon left."""
        if self.running() is not None:
            return
        self._remove()
        try:
            for folder in (self.pipes, self.logs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            subprocess.run(
                [CONTROL, "-d"],
                env=self._own_environment(),
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=_START_S,
            )
        except subprocess.CalledProcessError as error:
            self._remove()
            said = str(error.stderr).strip().partition("\n")[0]
            raise GpuError(f"MPS could not be started ({said}); check {CONTROL}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            self.quit()
            raise GpuError(f"MPS did not start ({error}); check {CONTROL}") from error
        if not _wait(lambda: self.running() is not None, self._end_s):
            self.quit()
            raise GpuError(f"MPS ended as soon as it was started; check {CONTROL}")

    def quit(self) -> None:
        """Stop the daemon, kill its remaining processes and remove its folders."""
        until_s = time.monotonic() + self._end_s
        while not self._is_gone() and time.monotonic() < until_s:
            # Repeated, because a daemon that is still starting does not read commands yet.
            self.ask("quit -t 5")
            _wait(self._is_gone, min(1.0, self._end_s))
        for pid in self._left() | set(filter(None, [self.running()])):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _wait(self._is_gone, self._end_s)
        self._remove()

    def clients(self) -> tuple[int, ...]:
        """The processes that compute through the daemon, as far as it reports them."""
        if self.running() is None:
            return ()
        servers = _listed(self.ask("get_server_list"))
        pids = {pid for server in servers for pid in _listed(self.ask(f"get_client_list {server}"))}
        # The list may contain a process that has just ended.
        return tuple(sorted(filter(is_running, pids)))

    def ask(self, command: str) -> str:
        """The daemon's answer to a command; empty if it does not answer."""
        try:
            done = subprocess.run(
                [CONTROL],
                input=f"{command}\n",
                text=True,
                env=self._own_environment(),
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_ANSWER_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout

    def _own_environment(self) -> dict[str, str]:
        others = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_MPS_")}
        return {**others, **self.environment}

    def _is_of(self, environment: Mapping[str, str]) -> bool:
        return environment.get(PIPES) == str(self.pipes)

    def _left(self) -> set[int]:
        """The daemon and its servers, as far as this user can see them."""
        named = (
            pid
            for pid in process_ids()
            if any(map(_is_mps, command_words(pid))) and is_running(pid)
        )
        return {pid for pid in named if self._is_of(process_environment(pid))}

    def _is_gone(self) -> bool:
        return not self._left() and self.running() is None

    def _remove(self) -> None:
        for folder in (self.pipes, self.logs):
            shutil.rmtree(folder, ignore_errors=True)


def _is_mps(program: str) -> bool:
    """Whether this is the program name of the daemon or of a server."""
    return program.startswith("nvidia-cuda-mps")


def _controls(pid: int) -> bool:
    """Whether the process is a control daemon.

    Processes that only send a command run without -d.
    """
    command = command_words(pid)
    return CONTROL in command and "-d" in command


def _listed(text: str) -> tuple[int, ...]:
    """The numbers in the daemon's answer, one per line. Lines with error messages are skipped."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(int(line) for line in lines if line.isdigit())


def _wait(is_done: Callable[[], bool], within_s: float) -> bool:
    """Wait for a condition; return whether it became true in time."""
    until_s = time.monotonic() + within_s
    while not is_done():
        if time.monotonic() >= until_s:
            return False
        time.sleep(0.02)
    return True


class MpsDriver:
    """One GPU shared among processes. MIG mode stays off."""

    name = DriverKind.MPS.value

    def __init__(
        self,
        gpu: SmiGpu,
        state: Path,
        *,
        limit_memory: bool = False,
        board: Board | None = None,
        boot: str | None = None,
        end_s: float = 10.0,
    ) -> None:
        """`limit_memory`: shares have no more memory than MIG's instances.

        `board`: that of shares; None: shares have the sizes of MIG's instances. `end_s`: seconds
        for the daemon to exit.
        """
        self._found, self._limit_memory = gpu, limit_memory
        self._stays = False
        """Whether the daemon stays for standbys although no share is left."""
        self._visible = gpu.visible
        folder = daemon_folder(state, DAEMON_OWNER, gpu)
        self._lock = folder / "daemon.lock"
        self.daemon = MpsDaemon(folder, self._visible, end_s)
        mine = self._board()
        if board is not None and board != (mine := catalogue.shares_of(mine)):
            raise InputError(
                f"gpu: the scenario is for a {board.name}, GPU {gpu.index} is a {mine.name}; "
                "name the board of this machine in the scenario"
            )
        self._virtual = VirtualBoard(folder / SHARES, mine, gpu.uuid, boot=boot, kind="MPS")

    @classmethod
    def open(
        cls, index: int, state: Path, *, limit_memory: bool = False, board: Board | None = None
    ) -> Self:
        """The driver of the GPU with this index. Raises InputError if MPS cannot share the GPU."""
        return cls(find_shareable(index), state, limit_memory=limit_memory, board=board)

    def gpu(self) -> Gpu:
        """The GPU, with the board that defines the sizes of its shares."""
        return Gpu(
            index=self._found.index,
            uuid=self._found.uuid,
            name=self._found.name,
            board=self._virtual.board,
            boot_id=self._virtual.boot_id,
            driver_version=self._found.driver_version,
            divides=True,
            driver=self.name,
        )

    def instances(self) -> tuple[GpuInstance, ...]:
        """All shares, with their registered processes and the clients of the daemon."""
        shares = self._virtual.instances()
        if not shares:
            return ()
        uuids = {share.uuid for share in shares if share.uuid is not None}
        registered = {holder.pid for share in shares for holder in share.holders}
        new = set(self.daemon.clients()) - registered.union(self._virtual.standbys())
        clients = {pid: process_environment(pid).get(INSTANCE) for pid in new}
        # A client that names no share may run in any of them.
        anywhere = [pid for pid, where in clients.items() if where not in uuids]
        named = {uuid: [pid for pid in new if clients[pid] == uuid] for uuid in uuids}
        return tuple(
            _with_clients(share, anywhere + named.get(share.uuid or "", [])) for share in shares
        )

    def create(self, place: Place) -> GpuInstance:
        """Create a share. The first one starts the daemon."""
        with hold_state_lock(self._lock):
            return self._virtual.create(place, meanwhile=self.daemon.start, remove=self._remove)

    def destroy(self, instance: GpuInstance) -> None:
        """Remove a share. Removing the last one stops the daemon."""
        with hold_state_lock(self._lock):
            for share in self.instances():
                same = (share.number, share.place) == (instance.number, instance.place)
                if same and share.holders:
                    users = ", ".join(map(str, share.holders))
                    raise InUseError(f"{share.place} is in use by {users}; end that first")
            self._remove(instance)

    def environment(self, instance: GpuInstance) -> Mapping[str, str]:
        """Environment of a process on the share. Starts the daemon again if it was killed."""
        self._virtual.environment(instance)  # raises if the share is gone, before the daemon starts
        with hold_state_lock(self._lock):
            self.daemon.start()
        return self.described(instance)

    def described(self, instance: GpuInstance) -> Mapping[str, str]:
        """The same environment, without starting the daemon."""
        return self._environment(instance.place, self._virtual.environment(instance))

    def environment_ahead(self, place: Place) -> Mapping[str, str]:
        """Environment of a worker on a share of a board of shares, which need not exist."""
        with hold_state_lock(self._lock):
            self.daemon.start()
        variables = self._virtual.environment_ahead(place)
        return self._environment(place, variables)

    def _environment(self, place: Place, variables: Mapping[str, str]) -> Mapping[str, str]:
        board, profile = self._virtual.board, self._virtual.board.profile(place.profile)
        sms = share_sms(board, profile, self.device_sms)
        part = {PERCENTAGE: self._percentage(sms)}
        if self._limit_memory:
            part[MEMORY_LIMIT] = memory_limit(board, profile, self._found.memory_mib)
        return {**self.daemon.environment, **variables, **part}

    def close(self) -> None:
        """Stop the daemon if it stayed for standbys and neither they nor shares are left."""
        if not self._stays:
            return
        with hold_state_lock(self._lock):
            if not self._virtual.instances() and not self._virtual.standbys():
                self.daemon.quit()

    def narrowed(self, environment: Mapping[str, str], percent: float) -> Mapping[str, str]:
        """Environment of a process on `percent` of the GPU, from that of the whole GPU."""
        sms = self._virtual.board.sms * percent / 100
        return {**environment, PERCENTAGE: self._percentage(sms)}

    def _percentage(self, sms: float) -> str:
        usable = safe_sms(self._found.name, sms, self.device_sms)
        return percentage(usable, self.device_sms)

    @cached_property
    def device_sms(self) -> int:
        """SMs of the whole GPU. An A100 has 108, its largest instance 98."""
        counted = nvidia_smi.device_sms(self._visible)
        return counted or self._virtual.board.sms

    def _board(self) -> Board:
        name, memory_mib = self._found.name, self._found.memory_mib
        board = nvidia_smi.find_board(name, memory_mib)
        if board is not None:
            return board
        sms = nvidia_smi.device_sms(self._visible)
        if sms is None:
            raise InputError(
                f"--gpu: the number of SMs of {name} cannot be read from CUDA; check that "
                "`nvidia-smi` and libcuda.so.1 are of the same driver"
            )
        return board_like(name, memory_mib, sms)

    def _remove(self, share: GpuInstance) -> None:
        """Remove a share.

        The daemon exits before the last share is removed, so that an interrupted removal can
        resume. It stays while a standby waits for the next share.
        """
        self._virtual.destroy_compute_instance(share)
        if all(instance.uuid is None for instance in self._virtual.instances()):
            self._stays = bool(self._virtual.standbys())
            if not self._stays:
                self.daemon.quit()
        self._virtual.destroy_gpu_instance(share)


def find_shareable(index: int, *, otherwise: str = OTHERWISE) -> SmiGpu:
    """The GPU with this index, if MPS can share it. Raises InputError that suggests `otherwise`."""
    gpu = nvidia_smi.find_gpu(index, otherwise=otherwise)
    if gpu.mig:
        raise InputError(
            f"--gpu: GPU {index} is in MIG mode, where MPS cannot share it; use "
            "--driver mig, or another GPU"
        )
    if shutil.which(CONTROL) is None:
        raise InputError(
            f"--driver: {CONTROL} is not installed; install it (it comes with NVIDIA's driver "
            f"for Linux), or {otherwise}"
        )
    return gpu


def daemon_folder(state: Path, owner: str, gpu: SmiGpu) -> Path:
    """The folder of an owner's daemon for a GPU, the same in every run.

    The path is short because a socket's path is limited, and contains no GPU index because indices
    may change at a reboot.
    """
    return state / daemon_name(owner, gpu.uuid)


def daemon_name(owner: str, gpu_uuid: str) -> str:
    """The name of the daemon's folder."""
    return f"{owner}-{gpu_uuid.removeprefix('GPU-')[:8]}"


def _with_clients(share: GpuInstance, clients: list[int]) -> GpuInstance:
    added = [Holder(pid, process_name(pid)) for pid in clients]
    return replace(share, holders=tuple(sorted((*share.holders, *added))))


def percentage(sms: int, device_sms: int) -> str:
    """The share in percent, rounded up to a tenth because MPS rounds the number of SMs down."""
    return f"{min(100.0, math.ceil(1000 * sms / device_sms) / 10):g}"


def safe_sms(name: str, sms: float, device_sms: int) -> int:
    """A number of SMs close to `sms` on which libraries compute correctly on this GPU.

    On shares of 48, 60 and 96 SMs of an H200, cuBLAS and cuDNN left parts of their results
    unwritten (docs/gpu.md). On 16, 32, 64 and all 132 SMs they never did, so the result is a power
    of two or the whole GPU. Other GPUs with clusters of SMs are assumed to behave the same. Older
    GPUs have no clusters.
    """
    if not catalogue.has_clusters(name):
        return max(1, round(sms))
    most = 3 * device_sms // 4  # a larger share may as well be the whole GPU
    powers = [1 << exponent for exponent in range(1, most.bit_length())]
    return min((*powers, device_sms), key=lambda power: abs(math.log(power / max(sms, 1.0))))


def share_sms(kind: Board, profile: MigProfile, device_sms: int) -> int:
    """SMs of an instance. If they are not published, the instance's fraction of the GPU's SMs."""
    return profile.sms or max(1, device_sms * profile.gpcs // kind.compute_slices)


def memory_limit(kind: Board, profile: MigProfile, memory_mib: float) -> str:
    """CUDA's limit for a share: the memory of the instance, on the only visible GPU."""
    part_mib = memory_mib * profile.memory_slices / kind.memory_slices
    mib = part_mib if profile.memory_gib is None else min(1024 * profile.memory_gib, memory_mib)
    return f"0={int(mib)}M"


def board_like(name: str, memory_mib: float, device_sms: int) -> Board:
    """A board for a GPU without MIG, divided into sevenths like an A100."""
    pattern = catalogue.board(_PATTERN)
    memory_gib = memory_mib / 1024

    def scaled(profile: MigProfile) -> MigProfile:
        part_gib = memory_gib * profile.memory_slices / pattern.memory_slices
        return replace(
            profile,
            name=f"{profile.gpcs}g.{max(1, round(part_gib))}gb",
            memory_gib=round(part_gib, 2),
            sms=max(1, device_sms * profile.gpcs // pattern.compute_slices),
            nvml_enum=None,
            profile_id=None,
        )

    profiles = tuple(scaled(profile) for profile in pattern.plain_profiles.values())
    return replace(pattern, name=name, profiles=profiles)


def _open(index: int, options: DriverOptions) -> closing[MpsDriver]:
    return closing(MpsDriver.open(index, options.state, board=options.board))


def _indices(_state: Path) -> tuple[int, ...]:
    try:
        return tuple(range(gpu_count()))
    except MigratorError:
        return (0,)  # MPS needs no NVML, and itself reports what is missing


DRIVERS = (DriverEntry(DriverKind.MPS, _open, _indices, lambda board: board.is_of_shares),)
