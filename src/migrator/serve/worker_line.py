"""One worker process as the daemon sees it: asked over its line, watched, killed when it hangs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import cast

from msgspec import Struct

from migrator.core.errors import InputError
from migrator.serve.assignment import ModelFaultError, WorkerLostError
from migrator.serve.messages import Fault, FromWorker, Kind, Release
from migrator.serve.nursery_process import Forkling, Nursery, readable
from migrator.serve.wire import Frame, Frames, WireError, parts

_ROOM = 1 << 12
"""Bytes: scores are few, and every frame takes a new buffer."""


class WorkerLine(asyncio.BufferedProtocol):
    """The line to one worker; answers find their questions by number."""

    def __init__(self, name: str, forkling: Forkling, ended: Callable[[str], None]) -> None:
        """`ended`: told once, how it ended, when the process is gone."""
        self.name, self.pid = name, forkling.pid
        self._handle, self._tell = forkling.handle, ended
        self._frames = Frames[FromWorker](FromWorker, _ROOM)
        self._waiting: dict[int, asyncio.Future[Frame[FromWorker]]] = {}
        self._numbers = count(1)
        self.released = False
        self._lost: str | None = None
        self._killed: str | None = None
        self._gone = False
        self._transport: asyncio.Transport | None = None
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    async def connected(
        cls, name: str, nursery: Nursery, tenant: str, ended: Callable[[WorkerLine, str], None]
    ) -> WorkerLine:
        """A worker of that tenant that waits for its assignment."""
        forkling = await nursery.fork(tenant, name)
        line = cls(name, forkling, lambda how: ended(line, how))
        try:
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: line, sock=forkling.end)
        except BaseException:
            forkling.end.close()
            os.close(forkling.handle)
            raise
        line._watching = asyncio.create_task(line._watch(nursery))
        return line

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._lost is None

    async def ask(
        self, message: Callable[[int], Struct], payload: memoryview, limit_s: float
    ) -> Frame[FromWorker]:
        """Its answer; WorkerLostError if it dies or takes longer, InputError, ModelFaultError."""
        if self._lost is not None:
            raise WorkerLostError(self._lost)
        number, loop = next(self._numbers), asyncio.get_running_loop()
        for each in parts(message(number), payload):
            self._write(each)
        answer: asyncio.Future[Frame[FromWorker]] = loop.create_future()
        self._waiting[number] = answer
        timer = loop.call_later(limit_s, self._hung, limit_s)
        try:
            frame = await answer
        finally:
            timer.cancel()
            self._waiting.pop(number, None)
        if isinstance(frame.message, Fault):
            raise self._fault(frame.message)
        return frame

    async def end(self, limit_s: float) -> None:
        """Let it finish what it is at and end; kill it if that takes longer. Then it is gone."""
        if self._lost is None:
            self._write(parts(Release())[0])
            self.released = True
            self._lost = f"worker {self.name} was released; take another"
        await self.over(limit_s)
        self._kill()
        await self.over()

    async def over(self, limit_s: float | None = None) -> None:
        """Return when the process is gone, or after so long."""
        assert self._watching is not None
        await asyncio.wait([self._watching], timeout=limit_s)

    def kill(self, why: str) -> None:
        """End it at once; whoever waits for an answer is told why."""
        self._killed = self._killed or why
        self._lose(why)
        self._kill()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio: the line is up."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's inherits nothing

    def get_buffer(self, sizehint: int) -> memoryview:
        """Asyncio: where to read to."""
        del sizehint
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Asyncio: so much was read."""
        try:
            frames = self._frames.add(nbytes)
        except WireError as error:
            self.kill(f"worker {self.name} was killed: {error}")
            return
        for each in frames:
            answer = self._waiting.get(each.message.number)
            if answer is not None and not answer.done():
                answer.set_result(each)

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio: it hung up; a process that goes on without its line is of no use."""
        del exc
        self._lose(self._ended("ended"))
        self._kill()

    def _write(self, data: bytes | memoryview) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def _hung(self, limit_s: float) -> None:
        self.kill(
            f"worker {self.name} (process {self.pid}) did not answer within {limit_s:g} s and "
            "was killed; start another"
        )

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        for each in self._waiting.values():
            if not each.done():
                each.set_exception(WorkerLostError(why))
        self._waiting.clear()

    def _kill(self) -> None:
        if not self._gone:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _fault(self, fault: Fault) -> Exception:
        if fault.kind is Kind.INPUT:
            return InputError(fault.said)
        if fault.kind is Kind.MODEL:
            return ModelFaultError(f"the model failed ({fault.said}); correct its class or input")
        return WorkerLostError(f"worker {self.name} gave up ({fault.said}); start another")

    async def _watch(self, nursery: Nursery) -> None:
        """The process's own end, which a line that others inherited would not tell."""
        await readable(self._handle)
        self._lose(self._ended("ended"))
        self._gone = True
        os.close(self._handle)
        assert self._transport is not None
        self._transport.close()
        said = await nursery.reap(self.pid)
        self._tell(self._killed or self._ended(said))

    def _ended(self, how: str) -> str:
        return f"worker {self.name} (process {self.pid}) {how}; start another"
