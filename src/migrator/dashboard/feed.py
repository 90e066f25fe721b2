"""Sends what is new in a run's records to all open pages.

A feed reads the records once a second for all open pages; without open pages nothing is read. A
page that receives too slowly is disconnected; it reconnects and gets everything that it missed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from migrator.core.errors import MigratorError
from migrator.dashboard.updates import Marker, Update, read_news, read_run_update

_log = logging.getLogger(__name__)

EVERY_S = 1.0
_BEHIND = 8
"""Updates that may be queued for a page."""
_QUIET_S = 10.0
"""An update is sent this often even if nothing is new, so that pages know the server is up."""
RETRY_MS = 1000


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
        return len(self._followers)

    async def whole(self, *, history: bool = False) -> Update:
        """The run or its history; pages opened within the same second share one reading."""
        async with self._reading:
            at_s, update = self._whole.get(history, (0.0, None))
            if update is None or time.monotonic() - at_s >= self._every_s:
                at_s = time.monotonic()
                update = await asyncio.to_thread(
                    read_run_update, self._path, self._run, history=history
                )
                self._whole[history] = (at_s, update)
            return update

    async def require(self) -> None:
        """InputError if there is no such run, before a stream is begun."""
        await asyncio.to_thread(read_news, self._path, self._run, _FAR)

    async def follow(self, after: Marker) -> AsyncGenerator[bytes, None]:
        """What is new after a marker, as server-sent events, until the reader leaves."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_BEHIND)
        try:
            until = await self._join(queue)
            yield frame(await asyncio.to_thread(read_news, self._path, self._run, after, until))
            while (data := await queue.get()) is not None:
                yield data
        except MigratorError as error:
            _log.warning("a page is disconnected: %s", error)  # it reconnects by itself
        finally:
            self._leave(queue)

    def close(self) -> None:
        self._closed = True
        for follower in list(self._followers):
            self._disconnect(follower)

    async def _join(self, queue: asyncio.Queue[bytes | None]) -> Marker:
        """Add a page; its queue gets what is newer than the marker returned."""
        async with self._reading:
            if self._task is None:
                update = await asyncio.to_thread(read_news, self._path, self._run, _FAR)
                self._marker = update.marker
                self._task = asyncio.create_task(self._send_news())
            self._followers.add(queue)
            if self._closed:
                self._disconnect(queue)
            return self._marker

    def _leave(self, queue: asyncio.Queue[bytes | None]) -> None:
        self._followers.discard(queue)
        if not self._followers and self._task is not None:
            self._task.cancel()
            self._task = None

    def _disconnect(self, queue: asyncio.Queue[bytes | None]) -> None:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)
        self._leave(queue)

    async def _send_news(self) -> None:
        quiet_s, last_error = 0.0, ""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                update = await asyncio.to_thread(read_news, self._path, self._run, self._marker)
            except Exception as error:  # tried again a second later
                if str(error) != last_error:
                    _log.warning("records cannot be read for the page: %s", error)
                last_error = str(error)
                continue
            last_error = ""
            quiet_s = quiet_s + self._every_s if update.empty else 0.0
            if update.empty and quiet_s < _QUIET_S:
                continue
            quiet_s, self._marker = 0.0, update.marker
            self._send(frame(update))

    def _send(self, data: bytes) -> None:
        for follower in list(self._followers):
            if follower.full():
                self._disconnect(follower)
            else:
                follower.put_nowait(data)


_FAR = Marker((2**62,) * len(Marker().rows))
"""Beyond every row, to get the current marker alone."""


def frame(update: Update) -> bytes:
    """One server-sent event."""
    return f"id: {update.marker}\ndata: {update.text}\n\n".encode()
