"""The page's routes: the page itself for everybody, what it shows for those who may see it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from weakref import WeakSet

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from migrator.core.errors import InputError
from migrator.dashboard import assets
from migrator.dashboard.feed import Feed
from migrator.dashboard.marker import Marker
from migrator.dashboard.source import Source, palette, told
from migrator.dashboard.window import window_figures, window_json
from migrator.serve.refusals import RefusedError

_log = logging.getLogger(__name__)
Handler = Callable[[Request], Awaitable[Response]]
_FOR_EVER = "public, max-age=31536000, immutable"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""plotly.js sets styles, nothing else needs more than this server."""
_PART_BYTES = 256 * 2**10
_MOST_DIGITS = 18
"""Numbers with more are none that records could have, and int() raises beyond some thousand."""
_MOST_FEEDS = 32
"""Runs whose last reading is remembered."""
_HEADERS = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff"}


class EndingError(RefusedError):
    """The server ends and follows nothing new."""

    status = 503


class Dashboard:
    """The page of some sources; `allow` refuses requests that may not see their records."""

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
        """Those that were forgotten too, as long as a page still follows one."""
        self._closed = False

    def routes(self) -> list[Route]:
        """Everything that a browser asks for."""
        run = "/dashboard/{source}/{run}"
        return [
            Route("/", self._page),
            Route("/dashboard/static/{name}", self._static),
            Route("/dashboard/plotly/{name}", self._plotly),
            Route("/dashboard/about", self._tell_about),
            Route("/dashboard/sources", self._guarded(self._tell_sources)),
            Route(run, self._guarded(self._whole)),
            Route(f"{run}/history", self._guarded(self._history)),
            Route(f"{run}/news", self._guarded(self._news)),
            Route(f"{run}/windows/{{window}}", self._guarded(self._window)),
            Route(f"{run}/windows/{{window}}/figures", self._guarded(self._figures)),
        ]

    def close(self) -> None:
        """Let every open page go, so that the server can end."""
        self._closed = True
        for each in list(self._every):
            each.close()

    def _guarded(self, handler: Handler) -> Handler:
        """For those who may; what goes wrong is one sentence."""

        async def answer(request: Request) -> Response:
            try:
                self._allow(request)
                return await handler(request)
            except RefusedError as refusal:
                return _problem(refusal.status, str(refusal))
            except InputError as error:
                return _problem(404, str(error))
            except Exception as error:
                _log.error("%s: %r", request.url.path, error)
                return _problem(500, "an error of the server; look into its log, or try again")

        return answer

    async def _page(self, request: Request) -> Response:
        return _sent(request, "page.html", _HEADERS)

    async def _static(self, request: Request) -> Response:
        return _sent(request, request.path_params["name"])

    async def _plotly(self, request: Request) -> Response:
        found = assets.plotly()
        if found is None or request.path_params["name"] != found.name:
            return _problem(404, f"plotly.js is not here; {assets.PLOTLY_MISSING}")
        headers = {"cache-control": _FOR_EVER, "content-length": str(len(found.data))}
        return StreamingResponse(
            _parts(found.data), headers=headers, media_type=assets.KINDS[".js"]
        )

    async def _tell_about(self, _: Request) -> Response:
        found = assets.plotly()
        plotly = {"plotly": found.name if found else None, "without": assets.PLOTLY_MISSING}
        return _json({**self._about, **plotly})

    async def _tell_sources(self, _: Request) -> Response:
        sources = [await asyncio.to_thread(told, each) for each in self._sources]
        return _json({"sources": sources, "palette": palette()})

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

    async def _figures(self, request: Request) -> Response:
        source, run, window = self._named(request)
        return _json(await asyncio.to_thread(window_figures, source.path, run, window))

    def _named(self, request: Request) -> tuple[Source, int, int]:
        given = request.path_params
        source = _number(given["source"])
        if source >= len(self._sources):
            raise InputError("source: there is none of that number; load the page again")
        return self._sources[source], _number(given["run"]), _number(given.get("window", "0"))

    def _feed(self, request: Request) -> Feed:
        source, run, _ = self._named(request)
        known_by = (self._sources.index(source), run)
        if self._closed:
            raise EndingError("this server is ending; ask again in a moment")
        if known_by not in self._feeds:
            if len(self._feeds) >= _MOST_FEEDS:
                self._feeds.clear()
            self._feeds[known_by] = Feed(source.path, run)
            self._every.add(self._feeds[known_by])
        return self._feeds[known_by]


def _number(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > _MOST_DIGITS:
        raise InputError("source, run, window: no number of any; load the page again")
    return int(text)


def _sent(request: Request, name: str, headers: dict[str, str] | None = None) -> Response:
    found = assets.own(name)
    if found is None:
        return _problem(404, f"{name[:80]} is not part of the page; load the page again")
    sent = {"etag": found.etag, "cache-control": "no-cache", **(headers or {})}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=sent)
    return Response(found.data, headers={**sent, "content-type": found.kind})


async def _parts(data: bytes) -> AsyncIterator[memoryview]:
    """Views of the data: clients that do not read hold no copies of it."""
    for begin in range(0, len(data), _PART_BYTES):
        yield memoryview(data)[begin : begin + _PART_BYTES]


def _problem(status: int, reason: str) -> Response:
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    text = json.dumps({"error": reason})
    return Response(text, status, headers, "application/json")


def _json(value: Any) -> Response:
    return _json_text(json.dumps(value, allow_nan=False, separators=(",", ":")))


def _json_text(text: str) -> Response:
    return Response(text, headers={"cache-control": "no-store"}, media_type="application/json")
