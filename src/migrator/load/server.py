"""The server that a load is sent to: its windows and its models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from migrator.core.errors import InputError
from migrator.io.http_client import NoAnswerError, Reply
from migrator.io.http_pool import HttpPool
from migrator.load.messages import ModelInput, error_in, read_metadata

READY_S = 60.0
"""Seconds until a model must have an instance."""
_POLL_S = 0.1


class _Window(msgspec.Struct):
    number: int
    begin_s_ago: float
    window_s: float
    begun: bool = True


class _ServerInfo(msgspec.Struct):
    window: _Window | None = None


@dataclass(frozen=True)
class ServerWindow:
    """The current window of the server, on the clock of the event loop."""

    number: int
    began_s: float
    window_s: float
    begun: bool = True
    """False: it begins with the first request."""


class TargetServer:
    """One server, accessed through a pool; `tokens` by tenant."""

    def __init__(self, url: str, pool: HttpPool, tokens: Mapping[str, str]) -> None:
        self.url, self.pool, self._tokens = url, pool, tokens

    def path(self, tenant: str, what: str = "") -> str:
        return f"/v2/models/{quote(tenant, safe='')}{what}"

    def headers(self, tenant: str) -> dict[str, str]:
        token = self._tokens.get(tenant)
        return {} if token is None else {"authorization": f"Bearer {token}"}

    async def window(self) -> ServerWindow | None:
        """The current window; None if the server does not report it."""
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        reply = await self._get("/v2", {})
        if reply.status != 200:
            raise InputError(
                f"--url: the server at {self.url} answers {reply.status} to /v2; name one that "
                "speaks the Open Inference Protocol, version 2"
            )
        try:
            now = msgspec.json.decode(reply.body, type=_ServerInfo).window
        except msgspec.MsgspecError:
            return None
        if now is None or now.window_s <= 0:
            return None
        middle_s = (asked_s + loop.time()) / 2
        return ServerWindow(now.number, middle_s - now.begin_s_ago, now.window_s, now.begun)

    async def model_input(self, tenant: str) -> ModelInput:
        reply = await self._get(self.path(tenant), self.headers(tenant))
        reason = error_in(reply.body)
        if reply.status in (401, 403):
            raise InputError(
                f"--token: the server refuses the token of {tenant} ({reason or reply.status}); "
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
                f"({reason or 'it does not say why'}); look into its log"
            )
        return read_metadata(tenant, reply.body)

    async def wait_until_ready(self, tenant: str) -> None:
        """Return when the tenant has an instance; a server without this route counts as ready."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + READY_S
        while True:
            reply = await self._get(self.path(tenant, "/ready"), self.headers(tenant))
            if reply.status in (200, 404):
                return
            if loop.time() > until_s:
                raise InputError(
                    f"--url: {tenant} has no instance ready after {READY_S:g} s "
                    f"({error_in(reply.body) or reply.status}); look at the server's state"
                )
            await asyncio.sleep(_POLL_S)

    async def _get(self, path: str, headers: Mapping[str, str]) -> Reply:
        try:
            return await self.pool.ask("GET", path, headers=headers)
        except NoAnswerError as error:
            raise InputError(
                f"--url: no answer from {self.url} ({error}); start the server with "
                "`migrator serve` or correct the address"
            ) from error
