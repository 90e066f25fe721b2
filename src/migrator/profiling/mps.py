"""Shares as MPS percentages. They may exceed the GPU together: they are measured in turn.

So there are no places on a board here, only the daemon and the percentages of `migrator.gpu`.
The daemon's folder is the same in every run: what a killed one left behind, the next one ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import ClassVar, Self

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.gpu import nvidia_smi
from migrator.gpu.lock import GpuLock
from migrator.gpu.mps import daemon_folder, shareable
from migrator.gpu.mps_daemon import Daemon
from migrator.gpu.mps_share import PERCENTAGE, percentage
from migrator.gpu.nvidia_smi import SeenGpu
from migrator.gpu.state import state_folder
from migrator.profiling.shares import OTHERWISE, OWNER, Json, Reconfiguration, Share, memory_gib


class Mps:
    """Divides one GPU among processes; MIG mode is off and stays off."""

    name: ClassVar[str] = "mps"
    coexist: ClassVar[bool] = True

    def __init__(self, gpu: SeenGpu, board: Board, *, end_s: float = 10.0) -> None:
        """`end_s`: how long its daemon may take to go."""
        self.board, self.device, self._gpu, self._end_s = board, "cuda", gpu, end_s
        self.words = "MPS shares of the SMs that MIG instances have"
        self.reconfigured: list[Reconfiguration] = []
        self._sms = board.sms
        self._client: dict[str, str] = {}

    @classmethod
    def found(cls, index: int) -> Self:
        """The GPU of that number, if MPS can divide it into what instances of its board have."""
        gpu = shareable(index, otherwise=OTHERWISE)
        board = nvidia_smi.known_board(gpu.name, gpu.memory_mib)
        if board is None:
            raise InputError(
                f"--gpu: {gpu.name} with {gpu.memory_mib / 1024:.0f} GiB is no board that is known "
                "to have MIG instances (`migrator boards` lists them); use another GPU"
            )
        return cls(gpu, board)

    def about(self) -> Json:
        """The GPU and its driver."""
        return {"gpu": self._gpu.name, "driver_version": self._gpu.driver_version}

    def readings(self) -> Json:
        """Clocks, temperature, power."""
        return {**nvidia_smi.readings(self._gpu.index)}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """A daemon in folders of its own; nobody else changes the GPU meanwhile."""
        state = state_folder()
        folder = daemon_folder(state, OWNER, self._gpu)
        daemon = Daemon(folder, self._gpu.visible, self._end_s)
        lock = GpuLock(state, self._gpu.uuid)
        with ExitStack() as stack:
            lock.take()
            stack.callback(lock.give_back)
            stack.callback(daemon.quit)
            daemon.quit()  # where a run was killed, its daemon still runs
            self._sms = nvidia_smi.device_sms(self._gpu.visible) or self.board.sms
            daemon.start()
            self._client = daemon.environment
            yield

    @contextmanager
    def share(self, sms: int) -> Iterator[Share]:
        """A percentage; the processes need nothing else, and nothing is left of it."""
        part = {PERCENTAGE: percentage(sms, self._sms)}
        yield Share(sms, memory_gib(self.board, sms), {**self._client, **part})

    def whole(self) -> Share:
        """Who does not know where the daemon is computes without it."""
        return Share(self._sms, None, self._gpu.visible)
