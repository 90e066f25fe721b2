"""Where a gateway gets the map from: the head, a file that the head writes, or another gateway.

Whatever happens to them, the last map stays in force.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from migrator.cluster.fleet.daemon_process import asked
from migrator.cluster.fleet.reports import ClusterMap
from migrator.core.errors import InputError, MigratorError

POLL_S = 0.5
SELDOM_S = 0.05
ANSWER_S = 2.0

_log = logging.getLogger(__name__)


class Asked(Protocol):
    """Somebody who knows; both may take a while and may raise anything."""

    def map(self) -> ClusterMap:
        """Who lives where."""
        ...

    def overview(self) -> Mapping[str, Any]:
        """Everything for people."""
        ...


class MapSource:
    """The newest map that was heard of, asked for again and again."""

    def __init__(self, asked_of: Asked) -> None:
        self._asked = asked_of
        self.current = ClusterMap()
        self.changed: Callable[[ClusterMap], None] = lambda _: None
        self.failures = 0
        """In a row."""
        self.trouble = ""
        """Why the last one failed, if it did."""
        self._asked_s = -SELDOM_S
        self._asking: asyncio.Task[None] | None = None
        self._begun = False
        self._one_by_one = asyncio.Lock()

    async def refresh(self) -> None:
        """Ask now; an answer that others wait for will do, unless it was asked for already.

        Not too often: whoever wants what is not there must not keep the head busy.
        """
        if self._asking is None or self._asking.done() or self._begun:
            self._asking, self._begun = asyncio.create_task(self._ask()), False
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._asking), ANSWER_S)

    async def follow(self) -> None:
        """Ask for ever."""
        while True:
            await self.refresh()
            await asyncio.sleep(POLL_S)

    async def overview(self) -> Mapping[str, Any]:
        """For people; MigratorError where nobody knows."""
        try:
            return await asyncio.to_thread(self._asked.overview)
        except MigratorError:
            raise
        except Exception as error:  # whatever Ray has for a head that is not there
            raise MigratorError("the head does not answer; try again in some seconds") from error

    async def _ask(self) -> None:
        async with self._one_by_one:
            await asyncio.sleep(self._asked_s + SELDOM_S - time.monotonic())
            self._begun, self._asked_s = True, time.monotonic()
            try:
                found = await asyncio.to_thread(self._asked.map)
            except Exception as error:  # the same
                self.failures, self.trouble = self.failures + 1, str(error)
                if self.failures == 1:
                    _log.warning("no new map (%s); the last one stays in force", error)
                return
        self.failures, self.trouble = 0, ""
        # one from before is a head's that leads no more, or a file that lags behind
        if found.order > self.current.order:
            self.current = found
            self.changed(found)


class FromHead:
    """Asks the head through Ray."""

    def __init__(self, ray: Any, find: Callable[[], Any]) -> None:
        """`find`: the head's handle; asked for again where it is not there."""
        self._ray, self._find, self._handle = ray, find, find()

    def map(self) -> ClusterMap:
        """Who lives where."""
        return msgspec.json.decode(self._got("map"), type=ClusterMap)

    def overview(self) -> Mapping[str, Any]:
        """Everything for people."""
        found: Mapping[str, Any] = self._got("overview")
        return found

    def _got(self, method: str) -> Any:
        try:
            return self._ray.get(getattr(self._handle, method).remote(), timeout=ANSWER_S)
        except Exception:
            self._handle = self._find()
            raise


class FromFile:
    """Reads what the head has written, wherever fsspec reaches it."""

    def __init__(self, path: str, read: Callable[[str], bytes]) -> None:
        self._path, self._read = path, read
        self.map()

    def map(self) -> ClusterMap:
        """Who lives where."""
        try:
            return msgspec.json.decode(self._read(self._path), type=ClusterMap)
        except (OSError, ValueError, ImportError, msgspec.DecodeError) as error:
            # ValueError, ImportError: what fsspec has for addresses that it cannot open here
            raise InputError(
                f"--map: {self._path} is no map ({error}); name the map.json of the shared folder"
            ) from error

    def overview(self) -> Mapping[str, Any]:
        """What the map tells of it."""
        found = self.map()
        return plain_overview(found)


class FromGateway:
    """Asks another gateway."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise InputError(f"--map: {url[:80]!r} is no address; write http://HOST:PORT")
        self._url, self._token = f"{parts.scheme}://{parts.netloc}", token

    def map(self) -> ClusterMap:
        """Who lives where."""
        return msgspec.convert(self._got("/cluster/map"), type=ClusterMap)

    def overview(self) -> Mapping[str, Any]:
        """Everything for people."""
        return self._got("/cluster")

    def _got(self, path: str) -> Mapping[str, Any]:
        status, told = asked(self._url, "GET", path, token=self._token)
        if status != 200:
            raise MigratorError(f"{self._url}{path} answers with {status}: {told.get('error')}")
        return told


def plain_overview(found: ClusterMap) -> dict[str, Any]:
    """What a map alone tells."""
    urls = {url: gpu for gpu, url in found.pages.items()}
    return {
        "scenario": "cluster",
        "epoch": found.epoch,
        "map": found.version,
        "ended": None,
        "moves": 0,
        "gpus": [
            {"gpu": gpu, "board": "", "state": "up", "words": "", "url": url}
            for gpu, url in found.pages.items()
        ],
        "tenants": {
            name: {"gpu": urls.get(url), "url": url, "state": "served", "words": ""}
            for name, url in found.homes.items()
        }
        | {
            name: {"gpu": None, "url": None, "state": "away", "words": why}
            for name, why in found.away.items()
        },
    }
