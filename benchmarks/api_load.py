"""An open-loop HTTP client of few instructions, so that it is the server that is measured."""

from __future__ import annotations

import asyncio
import time
from typing import cast


class Connection(asyncio.Protocol):
    """One request at a time on a connection that stays."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found or self._answer is None:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self._got = b""
            self._answer.set_result(head)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server left"))

    @property
    def open(self) -> bool:
        """Whether the server keeps it; it closes connections that are unused for long."""
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes) -> bytes:
        """The head of the answer."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer


class Load:
    """Requests at a fixed rate, whatever becomes of the ones before."""

    def __init__(self, port: int, request: bytes) -> None:
        self._port = port
        self._request = request
        self._free: list[Connection] = []
        self.latencies_s: list[float] = []
        self.refused = 0

    async def run(self, rate_rps: float, seconds: float, *, counted: bool) -> None:
        """Latencies count from the moment a request was due, not from when we got to it."""
        begin_s = time.perf_counter() + 0.05
        asking = []
        for number in range(int(rate_rps * seconds)):
            due_s = begin_s + number / rate_rps
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            asking.append(asyncio.create_task(self._one(due_s, counted)))
        await asyncio.gather(*asking)

    async def _one(self, due_s: float, counted: bool) -> None:
        while self._free and not self._free[-1].open:
            self._free.pop()
        connection = self._free.pop() if self._free else await self._connected()
        head = await connection.ask(self._request)
        if counted:
            self.latencies_s.append(time.perf_counter() - due_s)
            self.refused += not head.startswith(b"HTTP/1.1 200 ")
        self._free.append(connection)

    async def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", self._port)
        return connection
