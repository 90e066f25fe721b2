"""Shares as MPS percentages. Their sum may exceed the GPU, because they are measured in turn.

There are no places on a board, only the daemon and the percentages of `migrator.gpu`. The daemon's
folder is the same in every run, so that a run stops the daemon that a killed one left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import ClassVar, Self

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.gpu.drivers import nvidia_smi
from migrator.gpu.drivers.mps import PERCENTAGE, daemon_folder, find_shareable, percentage
from migrator.gpu.drivers.mps_daemon import MpsDaemon
from migrator.gpu.drivers.nvidia_smi import SmiGpu
from migrator.gpu.lock import GpuLock
from migrator.io.state_folder import state_folder
from migrator.profiling.shares import OTHERWISE, OWNER, Json, Reconfiguration, Share, memory_gib


class Mps:
    """Divides one GPU among processes. MIG mode stays off."""

    name: ClassVar[str] = "mps"
    coexist: ClassVar[bool] = True

    def __init__(self, gpu: SmiGpu, board: Board, *, end_s: float = 10.0) -> None:
        """`end_s` is the daemon's time to exit in seconds."""
        self.board, self.device, self._gpu, self._end_s = board, "cuda", gpu, end_s
        self.words = "MPS shares of the SMs that MIG instances have"
        self.reconfigured: list[Reconfiguration] = []
        self._sms = board.sms
        self._client: dict[str, str] = {}

    @classmethod
    def found(cls, index: int) -> Self:
        """The GPU with this index.

        Raises InputError if MPS cannot divide it into the instance sizes of its board.
        """
        gpu = find_shareable(index, otherwise=OTHERWISE)
        board = nvidia_smi.find_board(gpu.name, gpu.memory_mib)
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
        """Clocks, temperature and power."""
        return {**nvidia_smi.readings(self._gpu.index)}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Run a daemon in folders of its own, and prevent other changes to the GPU."""
        state = state_folder()
        folder = daemon_folder(state, OWNER, self._gpu)
        daemon = MpsDaemon(folder, self._gpu.visible, self._end_s)
        lock = GpuLock(state, self._gpu.uuid)
        with ExitStack() as stack:
            lock.acquire()
            stack.callback(lock.release)
            stack.callback(daemon.quit)
            daemon.quit()  # the daemon of a killed run may still run
            self._sms = nvidia_smi.device_sms(self._gpu.visible) or self.board.sms
            daemon.start()
            self._client = daemon.environment
            yield

    @contextmanager
    def share(self, sms: int) -> Iterator[Share]:
        """A share by percentage. Processes need nothing else, and there is nothing to remove."""
        part = {PERCENTAGE: percentage(sms, self._sms)}
        yield Share(sms, memory_gib(self.board, sms), {**self._client, **part})

    def whole(self) -> Share:
        """The whole GPU.

        A process without the daemon's folder in its environment runs without MPS.
        """
        return Share(self._sms, None, self._gpu.visible)
