"""What is new in a run, read once a slot for everybody who looks at it.

While nobody looks nothing is read. Every page gets the same bytes; one that reads too slowly is let
go, and comes back for everything that it missed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from migrator.core.errors import MigratorError
from migrator.dashboard.marker import Marker
from migrator.dashboard.news import Update, news, whole

EVERY_S = 1.0
_BEHIND = 8
"""Updates that may wait for a page."""
_QUIET_S = 10.0
"""So often a page hears that the server is there, where nothing is new."""
RETRY_MS = 1000

_log = logging.getLogger(__name__)


class Feed:
    """The followers of one run; used from one event loop."""

    def __init__(self, path: Path, run: int, every_s: float = EVERY_S) -> None:
        self._path, self._run, self._every_s = path, run, every_s
        self._marker = Marker()
        self._followers: set[asyncio.Queue[bytes | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._reading = asyncio.Lock()
        self._whole: dict[bool, tuple[float, Update]] = {}

    @property
    def followers(self) -> int:
        """Pages that look at it now."""
        return len(self._followers)

    async def whole(self, *, history: bool = False) -> Update:
        """The run or its history; pages that open within the same slot share one reading."""
        async with self._reading:
            at_s, known = self._whole.get(history, (0.0, None))
            if known is None or time.monotonic() - at_s >= self._every_s:
                at_s = time.monotonic()
                known = await asyncio.to_thread(whole, self._path, self._run, history=history)
                self._whole[history] = (at_s, known)
            return known

    async def require(self) -> None:
        """InputError where there is no such run: a stream that has begun can refuse nobody."""
        await asyncio.to_thread(news, self._path, self._run, _FAR)

    async def follow(self, after: Marker) -> AsyncGenerator[bytes, None]:
        """What is new after a marker, as server-sent events, until the reader leaves."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_BEHIND)
        try:
            until = await self._join(queue)
            yield frame(await asyncio.to_thread(news, self._path, self._run, after, until))
            while (each := await queue.get()) is not None:
                yield each
        except MigratorError as error:
            _log.warning("a page is let go: %s", error)  # it comes back and asks again
        finally:
            self._leave(queue)

    def close(self) -> None:
        """Let everybody go, also those who are just joining."""
        self._closed = True
        for each in list(self._followers):
            self._let_go(each)

    async def _join(self, queue: asyncio.Queue[bytes | None]) -> Marker:
        """From here on the queue gets what comes after the marker that is returned."""
        async with self._reading:
            if self._task is None:
                found = await asyncio.to_thread(news, self._path, self._run, _FAR)
                self._marker = found.marker
                self._task = asyncio.create_task(self._tell())
            self._followers.add(queue)
            if self._closed:
                self._let_go(queue)
            return self._marker

    def _leave(self, queue: asyncio.Queue[bytes | None]) -> None:
        self._followers.discard(queue)
        if not self._followers and self._task is not None:
            self._task.cancel()
            self._task = None

    def _let_go(self, queue: asyncio.Queue[bytes | None]) -> None:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)
        self._leave(queue)

    async def _tell(self) -> None:
        quiet_s, why_not = 0.0, ""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                found = await asyncio.to_thread(news, self._path, self._run, self._marker)
            except Exception as error:  # whatever it is, the pages wait for the next time
                if str(error) != why_not:
                    _log.warning("the page cannot be told what is new: %s", error)
                why_not = str(error)
                continue
            why_not = ""
            quiet_s = quiet_s + self._every_s if found.empty else 0.0
            if found.empty and quiet_s < _QUIET_S:
                continue
            quiet_s, self._marker = 0.0, found.marker
            self._send(frame(found))

    def _send(self, data: bytes) -> None:
        for each in list(self._followers):
            if each.full():
                self._let_go(each)
            else:
                each.put_nowait(data)


_FAR = Marker((2**62,) * len(Marker().rows))
"""Beyond every row: only the present marker is wanted."""


def frame(update: Update) -> bytes:
    """One server-sent event."""
    return f"id: {update.marker}\ndata: {update.text}\n\n".encode()
