"""The GPU as the daemon changes it: one thread that holds the lock and does one thing at a time.

Creating an instance takes a part of a second, and requests must not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from migrator.core.catalogue import Board
from migrator.core.errors import GpuError, InputError
from migrator.core.instance import Instance
from migrator.gpu.driver import Gpu, GpuDriver, GpuInstance, Place
from migrator.gpu.drivers import opened
from migrator.gpu.journal import Journal
from migrator.gpu.partitioner import Partitioner
from migrator.gpu.recovery import Recovered

OWNER = "serve"
_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class GpuLane:
    """One GPU, changed in a thread of its own; nobody else changes it meanwhile."""

    def __init__(self, driver: str, index: int, state: Path, board: str | None = None) -> None:
        self._wanted = (driver, index, state, board)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gpu")
        self._open = ExitStack()
        self._partitioner: Partitioner | None = None
        self._driver: GpuDriver | None = None
        self.recovered = Recovered()

    async def open(self) -> Gpu:
        """Take the GPU, settle what an earlier life left; what is ours and unused is removed."""
        return await self._run(self._opened)

    async def create(self, instance: Instance) -> None:
        """Make it; GpuError, and then nothing of it is there."""
        await self._run(lambda: self._hands().create(self._place(instance)))

    async def destroy(self, instance: Instance) -> None:
        """Remove it; GpuError, and then it is still there."""
        await self._run(lambda: self._hands().destroy(self._place(instance)))

    async def environment(self, instance: Instance) -> Mapping[str, str]:
        """What a process on it must find in its environment."""

        def asked() -> Mapping[str, str]:
            assert self._driver is not None
            return self._driver.environment(self._found(instance))

        return await self._run(asked)

    async def close(self) -> None:
        """Remove what is ours and unused, give the GPU back."""
        if self._partitioner is not None:
            try:
                await self._run(self._partitioner.clear)
            except GpuError as error:
                _log.warning("the GPU could not be cleared: %s", error)
        await self._run(self._open.close)
        self._thread.shutdown()

    def _opened(self) -> Gpu:
        name, index, state, board = self._wanted
        try:
            self._driver = self._open.enter_context(opened(name, index, state=state, board=board))
            journal = Journal(state / "journal.db")
            self._open.callback(journal.close)
            self._partitioner = Partitioner(self._driver, journal, OWNER)
            self._open.enter_context(self._partitioner.locked())
            self.recovered = self._partitioner.recover()
            self._partitioner.clear()
        except BaseException:
            self._open.close()
            raise
        gpu = self._driver.gpu()
        if not gpu.divides:
            self._open.close()
            raise InputError(
                f"GPU {index}: MIG mode is off; switch it on with `nvidia-smi -i {index} -mig 1`, "
                "or share the GPU with --driver mps"
            )
        return gpu

    def _hands(self) -> Partitioner:
        assert self._partitioner is not None, "open first"
        return self._partitioner

    def _board(self) -> Board:
        assert self._driver is not None
        return self._driver.gpu().board

    def _place(self, instance: Instance) -> Place:
        return Place(instance.start, self._board().plain_profiles[instance.gpcs].name)

    def _found(self, instance: Instance) -> GpuInstance:
        place = self._place(instance)
        for each in self._hands().ours():
            if each.place == place:
                return each
        raise GpuError(f"{place} is gone; it is made again")

    async def _run(self, doing: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, doing)
