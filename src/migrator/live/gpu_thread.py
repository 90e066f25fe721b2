"""The GPU of a daemon: one thread holds its lock and makes one change at a time.

Creating an instance takes a fraction of a second, for which the event loop must not block.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.core.instance import Instance
from migrator.core.placement import Place
from migrator.core.share import Holding
from migrator.gpu.drivers.base import Gpu, GpuDriver, GpuInstance
from migrator.gpu.drivers.mps import MpsDriver
from migrator.gpu.drivers.registry import open_driver
from migrator.gpu.journal.journal import Journal
from migrator.gpu.partition.partitioner import Partitioner
from migrator.io.processes import Process
from migrator.live.orphans import wait_until_gone

OWNER = "serve"
_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class GpuThread:
    """One GPU, locked and changed by its own thread."""

    def __init__(self, driver: str, index: int, state: Path, board: str | None = None) -> None:
        self._wanted = (driver, index, state, board)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gpu")
        self._open = ExitStack()
        self._driver: GpuDriver
        self._partitioner: Partitioner
        self._clearing: asyncio.Future[None]
        self.damaged: Path | None = None
        """Where a damaged or older journal was moved."""
        self.numbers: dict[Place, int] = {}
        """The driver's ids of the created instances."""
        self._environments: dict[Place, Mapping[str, str]] = {}
        """Environments of existing instances, so that a worker need not wait until the thread is
        idle."""

    async def open(self, orphans: Sequence[Process] = ()) -> Gpu:
        """Lock the GPU, and begin to remove what an earlier daemon left on it.

        `orphans`: killed processes of that daemon; their instances are free once they have exited.
        """
        gpu = await self._run(self._open_driver)
        # later changes of the GPU wait in the queue of the same thread
        self._clearing = self._run(lambda: self._clear(orphans))
        return gpu

    async def cleared(self) -> None:
        """Wait until unused instances of earlier daemons are removed; GpuError if that failed."""
        await asyncio.shield(self._clearing)

    async def create(self, holding: Holding) -> None:
        """Create an instance; after a GpuError nothing of it exists."""
        await self._run(lambda: self._create(holding))

    async def destroy(self, holding: Holding) -> None:
        """Destroy an instance; after a GpuError it still exists."""
        if isinstance(holding, Instance):
            self._environments.pop(self._place(holding), None)
            await self._run(lambda: self._partitioner.destroy(self._place(holding)))

    async def foreign_instances(self) -> tuple[Place, ...]:
        """Places of the instances that MIGRator did not create."""

        def find() -> tuple[Place, ...]:
            ours = {each.place for each in self._partitioner.ours()}
            there = {each.place for each in self._driver.instances()}
            return tuple(sorted(there - ours))

        return await self._run(find)

    async def environment(self, holding: Holding) -> Mapping[str, str]:
        """The environment variables of a process on an instance."""
        instance = holding if isinstance(holding, Instance) else self._whole()
        found = self._environments.get(self._place(instance))
        if found is None:
            found = await self._run(lambda: self._driver.environment(self._found(instance)))
        if isinstance(holding, Instance) or not isinstance(self._driver, MpsDriver):
            return found
        return self._driver.narrowed(found, holding.percent)

    def known_environment(self, holding: Holding) -> Mapping[str, str] | None:
        """The same without waiting, if the instance was created here; None for a share or an
        unknown instance."""
        if not isinstance(holding, Instance):
            return None
        return self._environments.get(self._place(holding))

    @asynccontextmanager
    async def whole(self) -> AsyncIterator[Mapping[str, str]]:
        """The environment of an instance as large as the board; no other instance may exist."""
        await self.cleared()
        instance = self._whole()
        await self.create(instance)
        try:
            yield await self.environment(instance)
        finally:
            await self.destroy(instance)

    async def close(self) -> None:
        """Destroy our unused instances and unlock the GPU."""
        await asyncio.gather(self._clearing, return_exceptions=True)
        try:
            await self._run(self._partitioner.clear)
        except MigratorError as error:
            _log.warning("the GPU could not be cleared: %s", error)
        await self._run(self._open.close)
        self._thread.shutdown()

    def _open_driver(self) -> Gpu:
        name, index, state, board = self._wanted
        try:
            self._driver = self._open.enter_context(
                open_driver(name, index, state=state, board=board)
            )
            journal = Journal(state / "journal.db")
            self._open.callback(journal.close)
            self.damaged = journal.damaged
            self._partitioner = Partitioner(self._driver, journal, OWNER)
            self._open.enter_context(self._partitioner.locked())
            gpu = self._driver.gpu()
            if not gpu.divides:
                raise InputError(
                    f"GPU {index}: MIG mode is off; switch it on with `nvidia-smi -i {index} "
                    "-mig 1`, or share the GPU with --driver mps"
                )
        except BaseException:
            self._open.close()
            raise
        return gpu

    def _clear(self, orphans: Sequence[Process]) -> None:
        wait_until_gone(orphans)
        self._partitioner.recover()
        self._partitioner.clear()

    def _create(self, holding: Holding) -> None:
        """Create an instance. Shares are parts of one as large as the board, created with the
        first."""
        place = self._place(holding if isinstance(holding, Instance) else self._whole())
        ours = () if isinstance(holding, Instance) else self._partitioner.ours()
        if any(each.place == place for each in ours):
            return
        made = self._partitioner.create(place)
        self.numbers[place] = made.number
        self._environments[place] = self._driver.environment(made)

    def _whole(self) -> Instance:
        return Instance(0, max(self._driver.gpu().board.plain_profiles))

    def _place(self, instance: Instance) -> Place:
        profiles = self._driver.gpu().board.plain_profiles
        return Place(instance.start, profiles[instance.gpcs].name)

    def _found(self, instance: Instance) -> GpuInstance:
        place = self._place(instance)
        for each in self._partitioner.ours():
            if each.place == place:
                return each
        raise GpuError(f"{place} is gone; it will be created again")

    def _run(self, call: Callable[[], _T]) -> asyncio.Future[_T]:
        """Append a call to the thread's queue."""
        return asyncio.get_running_loop().run_in_executor(self._thread, call)
