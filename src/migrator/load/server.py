"""The server as `migrator load` finds it: who it is, what its models take, which window is now."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

import msgspec

from migrator.core.errors import InputError
from migrator.load.http import HttpPool, NoAnswerError, Reply
from migrator.load.messages import Taken, problem, taken_by
from migrator.workload.live import ADMIN

READY_S = 60.0
"""How long a model may take until it has an instance."""
_POLL_S = 0.1
_SETTLED_S, _SAME_S, _LOOKS = 0.2, 0.1, 20
"""How long after a look the next one is, how far clocks may be apart, how many looks there are."""


_Told = TypeVar("_Told", bound=msgspec.Struct)


class _Window(msgspec.Struct):
    number: int
    begin_s_ago: float
    window_s: float


class _Server(msgspec.Struct):
    window: _Window | None = None


class _Status(msgspec.Struct):
    """What administration is told, where /v2 says nothing of windows."""

    window: int
    into_s: float
    window_s: float


@dataclass(frozen=True)
class ServerWindow:
    """The server's window that is now, on the clock of the event loop."""

    number: int
    began_s: float
    window_s: float

    def follows(self, before: ServerWindow) -> bool:
        """Whether this is the same clock as it was seen before."""
        expected_s = before.began_s + (self.number - before.number) * self.window_s
        return abs(self.began_s - expected_s) < _SAME_S


class Server:
    """One server, asked through a pool; `tokens` by tenant."""

    def __init__(self, url: str, pool: HttpPool, tokens: Mapping[str, str]) -> None:
        self.url, self.pool, self._tokens = url, pool, tokens

    def path(self, tenant: str, what: str = "") -> str:
        """Of a tenant's model."""
        return f"/v2/models/{quote(tenant, safe='')}{what}"

    def headers(self, tenant: str) -> dict[str, str]:
        """What lets its requests in."""
        token = self._tokens.get(tenant)
        return {} if token is None else {"authorization": f"Bearer {token}"}

    async def window(self) -> ServerWindow | None:
        """The window that is now, on a clock that has settled; None where nobody tells.

        A server that has just become ready may be about to begin its first window anew.
        """
        found = await self._window()
        for _ in range(_LOOKS):
            if found is None:
                return None
            await asyncio.sleep(_SETTLED_S)
            before, found = found, await self._window()
            if found is not None and found.follows(before):
                return found
        return found

    async def _window(self) -> ServerWindow | None:
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        reply = await self._reached("/v2", {})
        if reply.status != 200:
            raise InputError(
                f"--url: the server at {self.url} answers {reply.status} to /v2; name one that "
                "speaks the Open Inference Protocol, version 2"
            )
        found = _decoded(reply.body, _Server)
        now = found.window if found is not None else None
        if now is None:
            asked_s = loop.time()
            now = await self._from_status()
        if now is None or now.window_s <= 0:
            return None
        middle_s = (asked_s + loop.time()) / 2
        return ServerWindow(now.number, middle_s - now.begin_s_ago, now.window_s)

    async def _from_status(self) -> _Window | None:
        reply = await self._reached("/admin/status", self.headers(ADMIN))
        told = _decoded(reply.body, _Status) if reply.status == 200 else None
        return None if told is None else _Window(told.window, told.into_s, told.window_s)

    async def taken(self, tenant: str) -> Taken:
        """What a tenant's model takes; InputError says what to do where it cannot be asked."""
        reply = await self._reached(self.path(tenant), self.headers(tenant))
        words = problem(reply.body)
        if reply.status in (401, 403):
            raise InputError(
                f"--token: the server refuses the token of {tenant} ({words or reply.status}); "
                "give the one that it was started with"
            )
        if reply.status == 404:
            raise InputError(
                f"--tenant: the server at {self.url} has no {tenant}; name the scenario that it "
                "serves"
            )
        if reply.status != 200:
            raise InputError(
                f"--url: the server answers {reply.status} when asked about {tenant} "
                f"({words or 'it does not say why'}); look into its log"
            )
        return taken_by(tenant, reply.body)

    async def ready(self, tenant: str, limit_s: float = READY_S) -> None:
        """Returns when the tenant has an instance; a server that does not know is taken for one."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        while True:
            reply = await self._reached(self.path(tenant, "/ready"), self.headers(tenant))
            if reply.status in (200, 404):
                return
            if loop.time() > until_s:
                raise InputError(
                    f"--url: {tenant} has no instance ready after {limit_s:g} s "
                    f"({problem(reply.body) or reply.status}); look at the server's state"
                )
            await asyncio.sleep(_POLL_S)

    async def _reached(self, path: str, headers: Mapping[str, str]) -> Reply:
        try:
            return await self.pool.ask("GET", path, headers=headers)
        except NoAnswerError as error:
            raise InputError(
                f"--url: no answer from {self.url} ({error}); start the server with "
                "`migrator serve` or correct the address"
            ) from error


def _decoded(body: bytes, kind: type[_Told]) -> _Told | None:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError:
        return None
