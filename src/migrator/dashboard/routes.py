"""The live page: its routes, and its own server for finished runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from weakref import WeakSet

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from migrator.core.catalogue import board
from migrator.core.errors import HttpError, InputError, MigratorError
from migrator.dashboard.feed import Feed
from migrator.dashboard.updates import Marker, window_json
from migrator.records.rows import RunRow
from migrator.records.store import read_runs
from migrator.report.paint import HUES, OUTCOMES, shades
from migrator.serving.http.access import Tokens, require_own_page
from migrator.serving.http.operations import refusal_response
from migrator.serving.http.requests import ClientLimits
from migrator.serving.http.server import ApiServer, affordable

Handler = Callable[[Request], Awaitable[Response]]
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Elements have styles of their own; everything else comes from this server."""
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_MOST_DIGITS = 18
"""Longer numbers are in no records, and int() refuses very long ones."""
_MOST_FEEDS = 32
"""Runs whose feeds are kept."""
_MOST_RUNS = 50
_HEADERS = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """A file of records and its name on the page."""

    name: str
    path: Path


def source_json(source: Source) -> Mapping[str, Any]:
    """The source with its newest runs, oldest first."""
    runs = read_runs(source.path)[-_MOST_RUNS:]
    return {"name": source.name, "runs": [_run(run) for run in runs]}


def _run(row: RunRow) -> Mapping[str, Any]:
    return {
        **{key: value for key, value in asdict(row).items() if key not in ("about", "pid")},
        "window_s": row.window_s,
        "slot_s": row.slot_s,
        "tenants": row.tenants,
        "board_slices": _slices(row.board),
    }


def _slices(name: str) -> Mapping[str, Any]:
    """The slices of a board, and how many of them an instance of each size takes."""
    try:
        shown = board(name)
    except MigratorError:  # a board that only another version knows
        return {"memory": 8, "compute": 7, "widths": {}}
    return {
        "memory": shown.memory_slices,
        "compute": shown.compute_slices,
        "widths": {gpcs: profile.memory_slices for gpcs, profile in shown.plain_profiles.items()},
    }


class Dashboard:
    """The page of some sources; `allow` raises for requests that may not see their records."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        allow: Callable[[Request], object] = lambda _: None,
        needs_token: bool = False,
        acts: bool = False,
    ) -> None:
        self._sources, self._allow = tuple(sources), allow
        self._about = {"needs_token": needs_token, "acts": acts}
        self._feeds: dict[tuple[int, int], Feed] = {}
        self._every: WeakSet[Feed] = WeakSet()
        """Also those no longer in `_feeds`, as long as a page follows one."""
        self._closed = False

    def routes(self) -> list[Route]:
        run = "/dashboard/{source}/{run}"
        return [
            Route("/", self._page),
            Route("/dashboard/static/{name}", self._static),
            Route("/dashboard/about", self._send_about),
            Route("/dashboard/sources", self._guarded(self._send_sources)),
            Route(run, self._guarded(self._whole)),
            Route(f"{run}/history", self._guarded(self._history)),
            Route(f"{run}/news", self._guarded(self._news)),
            Route(f"{run}/windows/{{window}}", self._guarded(self._window)),
        ]

    def close(self) -> None:
        """Disconnect every open page, so that the server can end."""
        self._closed = True
        for feed in list(self._every):
            feed.close()

    def _guarded(self, handler: Handler) -> Handler:
        """The handler for requests that are allowed; errors become JSON."""

        async def answer(request: Request) -> Response:
            try:
                self._allow(request)
                return await handler(request)
            except HttpError as refusal:
                return refusal_response(refusal.status, str(refusal))
            except InputError as error:
                return refusal_response(404, str(error))
            except Exception as error:
                _log.error("%s: %r", request.url.path, error)
                return refusal_response(500, "internal error; see the server's log, or try again")

        return answer

    async def _page(self, request: Request) -> Response:
        return _sent(request, "page.html", _HEADERS)

    async def _static(self, request: Request) -> Response:
        return _sent(request, request.path_params["name"])

    async def _send_about(self, _: Request) -> Response:
        return _json(self._about)

    async def _send_sources(self, _: Request) -> Response:
        sources = [await asyncio.to_thread(source_json, source) for source in self._sources]
        palette = [asdict(shade) for shade in shades(HUES)]
        outcomes = {name: paint.fill for name, paint in OUTCOMES.items()}
        return _json({"sources": sources, "palette": palette, "outcomes": outcomes})

    async def _whole(self, request: Request) -> Response:
        return _json_text((await self._feed(request).whole()).text)

    async def _history(self, request: Request) -> Response:
        return _json_text((await self._feed(request).whole(history=True)).text)

    async def _news(self, request: Request) -> Response:
        sent = request.headers.get("last-event-id") or request.query_params.get("after", "")
        feed, marker = self._feed(request), Marker.parse(sent)
        await feed.require()
        stream = feed.follow(marker)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(stream, headers=headers, media_type="text/event-stream")

    async def _window(self, request: Request) -> Response:
        source, run, window = self._named(request)
        return _json_text(await asyncio.to_thread(window_json, source.path, run, window))

    def _named(self, request: Request) -> tuple[Source, int, int]:
        named = request.path_params
        source = _number(named["source"])
        if source >= len(self._sources):
            raise InputError("source: there is no such number; load the page again")
        return self._sources[source], _number(named["run"]), _number(named.get("window", "0"))

    def _feed(self, request: Request) -> Feed:
        source, run, _ = self._named(request)
        key = (self._sources.index(source), run)
        if self._closed:
            raise HttpError(503, "this server is shutting down; try again in a moment")
        if key not in self._feeds:
            if len(self._feeds) >= _MOST_FEEDS:
                self._feeds.clear()
            self._feeds[key] = Feed(source.path, run)
            self._every.add(self._feeds[key])
        return self._feeds[key]


def _number(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > _MOST_DIGITS:
        raise InputError("source, run, window: not a number; load the page again")
    return int(text)


@dataclass(frozen=True)
class _Asset:
    data: bytes
    kind: str
    etag: str


@cache
def _packaged_assets() -> Mapping[str, _Asset]:
    """All files by name, read once: the name in a request is never used as a path."""
    assets = {}
    for file in files("migrator.dashboard").joinpath("static").iterdir():
        if kind := _KINDS.get(Path(file.name).suffix):
            data = file.read_bytes()
            etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
            assets[file.name] = _Asset(data, kind, etag)
    return assets


def _sent(request: Request, name: str, headers: dict[str, str] | None = None) -> Response:
    asset = _packaged_assets().get(name)
    if asset is None:
        return refusal_response(404, f"{name[:80]} is not part of the page; load the page again")
    sent = {"etag": asset.etag, "cache-control": "no-cache", **(headers or {})}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=sent)
    return Response(asset.data, headers={**sent, "content-type": asset.kind})


def _json(value: Any) -> Response:
    return _json_text(json.dumps(value, allow_nan=False, separators=(",", ":")))


def _json_text(text: str) -> Response:
    return Response(text, headers={"cache-control": "no-store"}, media_type="application/json")


async def serve_page(
    sources: Sequence[Source], port: int, listening: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Serve the page on this machine until `stop`; `listening` gets the address."""
    tokens = Tokens()
    page = Dashboard(sources, allow=lambda request: require_own_page(request, tokens))
    server = ApiServer(
        Starlette(routes=page.routes()),
        tokens=tokens,
        port=port,
        limits=affordable(ClientLimits()),
        closing=page.close,
    )
    await server.start()
    try:
        listening(server.url)
        await stop.wait()
    finally:
        await server.stop()
