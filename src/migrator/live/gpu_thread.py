"""The GPU of a daemon: one thread holds its lock and makes one change at a time.

Creating an instance takes a fraction of a second, for which the event loop must not block.

Every process of a daemon carries a mark in its environment. It exits when its daemon is gone, but a
process that hangs or is stopped cannot, and would keep its instance. The next daemon of the same
folder kills such orphans before it starts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from migrator.core.catalogue import Place
from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.core.problem import Holding, Instance
from migrator.gpu.drivers import nvidia_smi
from migrator.gpu.drivers.base import Gpu, GpuDriver, GpuInstance
from migrator.gpu.drivers.mps import MpsDriver
from migrator.gpu.drivers.registry import open_driver
from migrator.gpu.drivers.virtual_board import EmulatedDriver
from migrator.gpu.journal import Journal
from migrator.gpu.partitioner import Partitioner
from migrator.io.processes import Process, process_environment, process_ids

MARK = "MIGRATOR_DAEMON"
"""Environment variable: process id, start time and folder of the daemon."""
GONE_S = 5.0
"""Seconds to wait until killed processes have exited."""
_LOOK_S = 0.02
OWNER = "serve"
_T = TypeVar("_T")

_log = logging.getLogger(__name__)


def mark_children(folder: Path) -> None:
    """Mark the processes that this one starts."""
    me = Process.of(os.getpid())
    os.environ[MARK] = f"{me.pid} {me.began} {folder.absolute()}"


def kill_orphans(folder: Path) -> tuple[Process, ...]:
    """Kill and return the processes of dead daemons of that folder."""
    processes = tuple(_orphans(folder.absolute()))
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)
    return processes


def wait_until_gone(processes: Sequence[Process]) -> None:
    """Wait for killed processes to exit: a process on a GPU takes a while to release it."""
    until_s = time.monotonic() + GONE_S
    while any(process.alive for process in processes) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)


def _orphans(folder: Path) -> Iterator[Process]:
    for pid in process_ids():
        if pid == os.getpid():
            continue
        process, marked = Process.of(pid), process_environment(pid).get(MARK)
        if marked is not None and _is_orphan(marked, folder):
            yield process


def _is_orphan(marked: str, folder: Path) -> bool:
    """Whether the mark names that folder and a dead daemon."""
    pid, _, rest = marked.partition(" ")
    began, _, where = rest.partition(" ")
    if where != str(folder) or not pid.isdecimal() or not began.isdecimal():
        return False
    return not Process(int(pid), "", int(began)).alive


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
        self._ahead: dict[Place, Mapping[str, str]] = {}

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
            ours = {instance.place for instance in self._partitioner.ours()}
            there = {instance.place for instance in self._driver.instances()}
            return tuple(sorted(there - ours))

        return await self._run(find)

    async def used_mib(self) -> float:
        """Memory that programs use on a GPU shared by MPS; 0 if the driver does not tell."""
        if not isinstance(self._driver, MpsDriver):
            return 0.0
        index = self._wanted[1]
        return await self._run(lambda: nvidia_smi.used_mib(index) or 0.0)

    async def environment(self, holding: Holding) -> Mapping[str, str]:
        """The environment variables of a process on an instance."""
        instance = holding if isinstance(holding, Instance) else self._whole()
        environment = self._environments.get(self._place(instance))
        if environment is None:
            environment = await self._run(
                lambda: self._driver.environment(self._instance_at(instance))
            )
        if isinstance(holding, Instance) or not isinstance(self._driver, MpsDriver):
            return environment
        return self._driver.narrowed(environment, holding.percent)

    async def worker_environment(self, holding: Holding) -> Mapping[str, str]:
        """The environment of a worker. It may wait for a share of a board of shares; other
        instances must exist."""
        driver = self._driver
        if not isinstance(holding, Instance) or not driver.gpu().board.is_of_shares:
            return await self.environment(holding)
        place = self._place(holding)
        if place not in self._ahead:
            assert isinstance(driver, MpsDriver | EmulatedDriver)
            self._ahead[place] = await self._run(lambda: driver.environment_ahead(place))
        return self._ahead[place]

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
        if any(instance.place == place for instance in ours):
            return
        instance = self._partitioner.create(place)
        self.numbers[place] = instance.number
        self._environments[place] = self._driver.environment(instance)

    def _whole(self) -> Instance:
        return Instance(0, max(self._driver.gpu().board.plain_profiles))

    def _place(self, instance: Instance) -> Place:
        profiles = self._driver.gpu().board.plain_profiles
        return Place(instance.start, profiles[instance.gpcs].name)

    def _instance_at(self, instance: Instance) -> GpuInstance:
        place = self._place(instance)
        for candidate in self._partitioner.ours():
            if candidate.place == place:
                return candidate
        raise GpuError(f"{place} is gone; it will be created again")

    def _run(self, call: Callable[[], _T]) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, call)
