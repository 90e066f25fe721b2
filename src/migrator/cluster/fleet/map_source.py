"""Where a gateway gets the map that names each tenant's daemon.

The map comes from the head, from a file that the head writes, or from another gateway. If the
source fails, the last map stays in force.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from migrator.cluster.fleet.cluster_map import ClusterMap
from migrator.cluster.fleet.gpu_daemon import call_daemon
from migrator.core.errors import InputError, MigratorError
from migrator.io.http_client import address_of

POLL_S = 0.5
SELDOM_S = 0.05
ANSWER_S = 2.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MapProvider:
    """A source of the map. Both functions may block and may raise any exception."""

    map: Callable[[], ClusterMap]
    overview: Callable[[], Mapping[str, Any]]
    """Returns the status of the cluster, for display."""


class MapSource:
    """The newest known map, refreshed periodically."""

    def __init__(self, provider: MapProvider) -> None:
        self._provider = provider
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
        while True:
            await self.refresh()
            await asyncio.sleep(POLL_S)

    async def overview(self) -> Mapping[str, Any]:
        """Status of the cluster for display; MigratorError if it is not available."""
        try:
            return await asyncio.to_thread(self._provider.overview)
        except MigratorError:
            raise
        except Exception as error:  # any Ray error for a head that is unavailable
            raise MigratorError("the head does not answer; try again in some seconds") from error

    async def _ask(self) -> None:
        async with self._one_by_one:
            await asyncio.sleep(self._asked_s + SELDOM_S - time.monotonic())
            self._begun, self._asked_s = True, time.monotonic()
            try:
                newest = await asyncio.to_thread(self._provider.map)
            except Exception as error:  # likewise
                self.failures, self.trouble = self.failures + 1, str(error)
                if self.failures == 1:
                    _log.warning("no new map (%s); the last one stays in force", error)
                return
        self.failures, self.trouble = 0, ""
        # an older map is from a deposed head, or from a file that lags behind
        if newest.order > self.current.order:
            self.current = newest
            self.changed(newest)


def from_head(ray: Any, find: Callable[[], Any]) -> MapProvider:
    """The map of the head, through Ray; `find` returns the head's handle."""
    handle = find()

    def call(method: str) -> Any:
        nonlocal handle
        try:
            return ray.get(getattr(handle, method).remote(), timeout=ANSWER_S)
        except Exception:
            handle = find()
            raise

    def newest() -> ClusterMap:
        return msgspec.json.decode(call("map"), type=ClusterMap)

    return MapProvider(newest, lambda: call("overview"))


def from_file(path: str, read: Callable[[str], bytes]) -> MapProvider:
    """The map in a file that the head writes, read through fsspec."""

    def newest() -> ClusterMap:
        try:
            return msgspec.json.decode(read(path), type=ClusterMap)
        except (OSError, ValueError, ImportError, msgspec.DecodeError) as error:
            # ValueError, ImportError: raised by fsspec for addresses that it cannot open here
            raise InputError(
                f"--map: {path} is no map ({error}); name the map.json of the shared folder"
            ) from error

    newest()
    return MapProvider(newest, lambda: plain_overview(newest()))


def from_gateway(url: str, token: str | None, context: ssl.SSLContext | None = None) -> MapProvider:
    """The map of another gateway; `context`: what is trusted of it."""
    address = address_of(url, "--map")
    base = f"{'https' if address.secure else 'http'}://{address.authority}"

    def get(path: str) -> Mapping[str, Any]:
        status, answer = call_daemon(base, "GET", path, token=token, context=context)
        if status != 200:
            raise MigratorError(f"{base}{path} answers with {status}: {answer.get('error')}")
        return answer

    return MapProvider(
        lambda: msgspec.convert(get("/cluster/map"), type=ClusterMap), lambda: get("/cluster")
    )


def plain_overview(cluster_map: ClusterMap) -> dict[str, Any]:
    """The part of the status that a map contains."""
    urls = {url: gpu for gpu, url in cluster_map.pages.items()}
    return {
        "scenario": "cluster",
        "epoch": cluster_map.epoch,
        "map": cluster_map.version,
        "ended": None,
        "moves": 0,
        "gpus": [
            {"gpu": gpu, "board": "", "state": "up", "words": "", "url": url}
            for gpu, url in cluster_map.pages.items()
        ],
        "tenants": {
            name: {"gpu": urls.get(url), "url": url, "state": "served", "words": ""}
            for name, url in cluster_map.homes.items()
        }
        | {
            name: {"gpu": None, "url": None, "state": "away", "words": why}
            for name, why in cluster_map.away.items()
        },
    }
