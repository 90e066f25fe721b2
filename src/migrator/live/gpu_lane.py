"""The GPU as the daemon changes it: one thread that holds the lock and does one thing at a time.

Creating an instance takes a part of a second, and requests must not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from migrator.core.catalogue import Board
from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.core.instance import Instance
from migrator.core.share import Holding
from migrator.gpu.driver import Gpu, GpuDriver, GpuInstance, Place
from migrator.gpu.drivers import opened
from migrator.gpu.journal import Journal
from migrator.gpu.mps import MpsDriver
from migrator.gpu.partitioner import Partitioner
from migrator.gpu.processes import Process
from migrator.gpu.recovery import Recovered
from migrator.live import leftovers

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
        self._clearing: asyncio.Future[None] | None = None
        self.recovered = Recovered()
        self.damaged: Path | None = None
        """Where a damaged or older journal was kept aside."""
        self.numbers: dict[Place, int] = {}
        """The driver's own numbers of the instances that were made."""
        self._environments: dict[Place, Mapping[str, str]] = {}
        """Of those that are there: a worker need not wait until the lane is free."""

    async def open(self, orphans: Sequence[Process] = ()) -> Gpu:
        """Take the GPU, and begin to remove what an earlier daemon left on it.

        `orphans`: its processes, which have been killed; their instances are free once they end.
        """
        gpu = await self._run(self._opened)
        # later changes of the GPU queue up behind it in the same thread
        self._clearing = self._submit(lambda: self._clear(orphans))
        return gpu

    async def cleared(self) -> None:
        """Wait until nothing unused of ours is left on the GPU; GpuError if that failed."""
        assert self._clearing is not None, "open first"
        await asyncio.shield(self._clearing)

    async def create(self, holding: Holding) -> None:
        """Make it; GpuError, and then nothing of it is there."""
        await self._run(lambda: self._create(holding))

    async def destroy(self, holding: Holding) -> None:
        """Remove it; GpuError, and then it is still there."""
        if isinstance(holding, Instance):
            self._environments.pop(self._place(holding), None)
            await self._run(lambda: self._hands().destroy(self._place(holding)))

    async def others(self) -> tuple[Place, ...]:
        """Places of instances that are not ours; nobody but who made them touches those."""

        def looked() -> tuple[Place, ...]:
            assert self._driver is not None
            ours = {each.place for each in self._hands().ours()}
            there = {each.place for each in self._driver.instances()}
            return tuple(sorted(there - ours))

        return await self._run(looked)

    async def environment(self, holding: Holding) -> Mapping[str, str]:
        """What a process on it must find in its environment."""
        instance = holding if isinstance(holding, Instance) else self._whole()

        def asked() -> Mapping[str, str]:
            assert self._driver is not None
            return self._driver.environment(self._found(instance))

        found = self._environments.get(self._place(instance))
        if found is None:
            found = await self._run(asked)
        if isinstance(holding, Instance) or not isinstance(self._driver, MpsDriver):
            return found
        return self._driver.narrowed(found, holding.percent)

    def known_environment(self, holding: Holding) -> Mapping[str, str] | None:
        """The same for an instance that was made here; None for a share or an unknown instance."""
        if not isinstance(holding, Instance):
            return None
        return self._environments.get(self._place(holding))

    @asynccontextmanager
    async def whole(self) -> AsyncIterator[Mapping[str, str]]:
        """The environment of an instance as large as the board, while nothing else is there."""
        await self.cleared()
        instance = self._whole()
        await self.create(instance)
        try:
            yield await self.environment(instance)
        finally:
            await self.destroy(instance)

    async def close(self) -> None:
        """Remove what is ours and unused, give the GPU back."""
        if self._clearing is not None:
            await asyncio.gather(self._clearing, return_exceptions=True)
        if self._partitioner is not None:
            try:
                await self._run(self._partitioner.clear)
            except MigratorError as error:
                _log.warning("the GPU could not be cleared: %s", error)
        await self._run(self._open.close)
        self._thread.shutdown()

    def _opened(self) -> Gpu:
        name, index, state, board = self._wanted
        try:
            self._driver = self._open.enter_context(opened(name, index, state=state, board=board))
            journal = Journal(state / "journal.db")
            self._open.callback(journal.close)
            self.damaged = journal.damaged
            self._partitioner = Partitioner(self._driver, journal, OWNER)
            self._open.enter_context(self._partitioner.locked())
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

    def _clear(self, orphans: Sequence[Process]) -> None:
        leftovers.wait_until_gone(orphans)
        self.recovered = self._hands().recover()
        self._hands().clear()

    def _create(self, holding: Holding) -> None:
        """Shares are parts of one instance as large as the board, made with the first of them."""
        if isinstance(holding, Instance):
            self._made(self._place(holding))
        elif not any(each.place == self._place(self._whole()) for each in self._hands().ours()):
            self._made(self._place(self._whole()))

    def _made(self, place: Place) -> None:
        assert self._driver is not None
        made = self._hands().create(place)
        self.numbers[place] = made.number
        self._environments[place] = self._driver.environment(made)

    def _whole(self) -> Instance:
        return Instance(0, max(self._board().plain_profiles))

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
        return await self._submit(doing)

    def _submit(self, doing: Callable[[], _T]) -> asyncio.Future[_T]:
        """Queue it for the thread at once, behind everything submitted before."""
        return asyncio.get_running_loop().run_in_executor(self._thread, doing)
