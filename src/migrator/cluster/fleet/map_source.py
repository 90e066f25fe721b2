"""Sources of a gateway's map: the head, a file that the head writes, or another gateway.

If the source fails, the last map stays in force.
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

from migrator.cluster.fleet.daemon_process import call_daemon
from migrator.cluster.fleet.messages import ClusterMap
from migrator.core.errors import InputError, MigratorError

POLL_S = 0.5
SELDOM_S = 0.05
ANSWER_S = 2.0

_log = logging.getLogger(__name__)


class MapProvider(Protocol):
    """A source of the map. Both methods may block and may raise any exception."""

    def map(self) -> ClusterMap:
        """Return the current map."""
        ...

    def overview(self) -> Mapping[str, Any]:
        """Return the status of the cluster, for display."""
        ...


class MapSource:
    """The newest known map, refreshed periodically."""

    def __init__(self, asked_of: MapProvider) -> None:
        self._asked = asked_of
        self.current = ClusterMap()
        self.changed: Callable[[ClusterMap], None] = lambda _: None
        self.failures = 0
        """Number of consecutive failures."""
        self.trouble = ""
        """Why the last request failed; "" if it did not."""
        self._asked_s = -SELDOM_S
        self._asking: asyncio.Task[None] | None = None
        self._begun = False
        self._one_by_one = asyncio.Lock()

    async def refresh(self) -> None:
        """Fetch the map now, or join a request that is waiting to be sent.

        The rate is limited, so that requests for unknown tenants do not keep the head busy.
        """
        if self._asking is None or self._asking.done() or self._begun:
            self._asking, self._begun = asyncio.create_task(self._ask()), False
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._asking), ANSWER_S)

    async def follow(self) -> None:
        """Refresh the map periodically, forever."""
        while True:
            await self.refresh()
            await asyncio.sleep(POLL_S)

    async def overview(self) -> Mapping[str, Any]:
        """Status of the cluster for display; MigratorError if it is not available."""
        try:
            return await asyncio.to_thread(self._asked.overview)
        except MigratorError:
            raise
        except Exception as error:  # any Ray error for a head that is unavailable
            raise MigratorError("the head does not answer; try again in some seconds") from error

    async def _ask(self) -> None:
        async with self._one_by_one:
            await asyncio.sleep(self._asked_s + SELDOM_S - time.monotonic())
            self._begun, self._asked_s = True, time.monotonic()
            try:
                found = await asyncio.to_thread(self._asked.map)
            except Exception as error:  # likewise
                self.failures, self.trouble = self.failures + 1, str(error)
                if self.failures == 1:
                    _log.warning("no new map (%s); the last one stays in force", error)
                return
        self.failures, self.trouble = 0, ""
        # an older map is from a deposed head, or from a file that lags behind
        if found.order > self.current.order:
            self.current = found
            self.changed(found)


class FromHead:
    """Gets the map from the head through Ray."""

    def __init__(self, ray: Any, find: Callable[[], Any]) -> None:
        """`find` returns the head's handle; called again if the head is unavailable."""
        self._ray, self._find, self._handle = ray, find, find()

    def map(self) -> ClusterMap:
        """Return the current map."""
        return msgspec.json.decode(self._got("map"), type=ClusterMap)

    def overview(self) -> Mapping[str, Any]:
        """Return the status of the cluster, for display."""
        found: Mapping[str, Any] = self._got("overview")
        return found

    def _got(self, method: str) -> Any:
        try:
            return self._ray.get(getattr(self._handle, method).remote(), timeout=ANSWER_S)
        except Exception:
            self._handle = self._find()
            raise


class FromFile:
    """Reads the file that the head writes, through fsspec."""

    def __init__(self, path: str, read: Callable[[str], bytes]) -> None:
        self._path, self._read = path, read
        self.map()

    def map(self) -> ClusterMap:
        """Return the current map."""
        try:
            return msgspec.json.decode(self._read(self._path), type=ClusterMap)
        except (OSError, ValueError, ImportError, msgspec.DecodeError) as error:
            # ValueError, ImportError: raised by fsspec for addresses that it cannot open here
            raise InputError(
                f"--map: {self._path} is no map ({error}); name the map.json of the shared folder"
            ) from error

    def overview(self) -> Mapping[str, Any]:
        """Return the part of the status that the map contains."""
        found = self.map()
        return plain_overview(found)


class FromGateway:
    """Gets the map from another gateway."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise InputError(f"--map: {url[:80]!r} is no address; write http://HOST:PORT")
        self._url, self._token = f"{parts.scheme}://{parts.netloc}", token

    def map(self) -> ClusterMap:
        """Return the current map."""
        return msgspec.convert(self._got("/cluster/map"), type=ClusterMap)

    def overview(self) -> Mapping[str, Any]:
        """Return the status of the cluster, for display."""
        return self._got("/cluster")

    def _got(self, path: str) -> Mapping[str, Any]:
        status, told = call_daemon(self._url, "GET", path, token=self._token)
        if status != 200:
            raise MigratorError(f"{self._url}{path} answers with {status}: {told.get('error')}")
        return told


def plain_overview(found: ClusterMap) -> dict[str, Any]:
    """The part of the status that a map contains."""
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
