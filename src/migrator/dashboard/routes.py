"""The live page: its routes, the records it shows, and its own server for finished runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakSet

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from migrator.core.catalogue import board
from migrator.core.errors import HttpError, InputError, MigratorError
from migrator.dashboard.updates import Feed, Marker, facts_of, read_windows, run_row, seconds_json
from migrator.io.database import reading
from migrator.records.rows import (
    SCHEMA,
    EventRecord,
    PlanRecord,
    RunRow,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
    read_rows,
    read_run,
)
from migrator.records.runs import RecordedRun, recorded_run
from migrator.records.store import read_runs
from migrator.report.html_page import summary_of
from migrator.report.page import HUES, OUTCOMES, Chart, Paint, legend_of, shades
from migrator.report.plotly_charts import figure_of, height_of, upright_title
from migrator.report.run_charts import arrivals_chart, seconds_chart, seconds_of, starts_chart
from migrator.report.slices import held_chart, planned_chart
from migrator.serving.http.operations import refusal_response
from migrator.serving.http.requests import Limits, Tokens, require_own_page
from migrator.serving.http.server import ApiServer, affordable

_LAST_S = 1e12
"""Until when a window lasts that has not ended."""
Handler = Callable[[Request], Awaitable[Response]]
_FOR_EVER = "public, max-age=31536000, immutable"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""plotly.js sets styles; everything else comes from this server."""
_PART_BYTES = 256 * 2**10
_MOST_DIGITS = 18
"""Longer numbers are in no records, and int() refuses very long ones."""
_MOST_FEEDS = 32
"""Runs whose feeds are kept."""
_MOST_RUNS = 50
_HEADERS = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff"}
_KINDS: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PLOTLY_MISSING = "pip install 'migrator[figures]'"

_log = logging.getLogger(__name__)


def window_json(path: Path, run: int, number: int) -> str:
    """The seconds, units and plans of an old window, in the format of an update."""
    with reading(path, SCHEMA) as connection:
        row = run_row(connection, path, run)
        around = _around(connection, run, number)
        own = ("window = ?", number)
        rows = read_run(connection, row, {WindowRecord: own, PlanRecord: own})
        facts = facts_of(replace(rows, units=around.units))
        where = "run = ? AND second >= ? AND second < ?"
        seconds = seconds_json(connection, where, run, *around.seconds)
    return f'{json.dumps(facts, allow_nan=False)[:-1]},"seconds":{seconds}}}'


def window_figures(path: Path, run: int, number: int) -> Mapping[str, Any]:
    """The charts of a window, each with its title, legend and summary."""
    recorded = _window_run(path, run, number)
    window = next(window for window in recorded.windows if window.number == number)
    known = board(recorded.records.run.board)
    charts: list[Chart | None] = [
        planned_chart(recorded, window, known, recorded.overheads_s),
        held_chart(recorded, window, known),
    ]
    for hue, name in enumerate(recorded.tenants):
        seconds = seconds_of(recorded, name, [window])
        charts += [arrivals_chart(name, hue % HUES, seconds), seconds_chart(name, seconds)]
    charts.append(starts_chart(recorded))
    return {
        "window": number,
        "charts": [_chart_json(chart) for chart in charts if chart is not None],
    }


@dataclass(frozen=True)
class _Around:
    """A window, its neighbours, its units and the span of its seconds."""

    first: WindowRecord
    """Of the run."""
    before: WindowRecord | None
    window: WindowRecord
    seconds: tuple[int, int]
    units: tuple[UnitRecord, ...]


def _around(connection: sqlite3.Connection, run: int, number: int) -> _Around:
    rows = read_windows(connection, run, "window <= ?", number)
    if not rows or rows[-1].window != number:
        raise InputError(f"window: run {run} has no window {number}; load the page again")
    first, window = rows[0], rows[-1]
    later = "SELECT min(began_s) FROM window WHERE run = ? AND window > ?"
    next_s = connection.execute(later, (run, number)).fetchone()[0]
    until_s = _LAST_S if window.ended_s is None else window.ended_s
    until_s = until_s if next_s is None else min(until_s, next_s)
    overlap = "from_s < ? AND (to_s IS NULL OR to_s > ?)"
    return _Around(
        first,
        rows[-2] if len(rows) > 1 else None,
        window,
        (round(window.began_s - first.began_s), round(until_s - first.began_s)),
        read_rows(connection, run, UnitRecord, overlap, until_s, window.began_s),
    )


def _window_run(path: Path, run: int, number: int) -> RecordedRun:
    """The run with only the rows that one window needs: a day of them takes a second to read."""
    with reading(path, SCHEMA) as connection:
        row, around = run_row(connection, path, run), _around(connection, run, number)
        first, last = around.seconds
        wanted = {window.window for window in (around.before, around.window) if window is not None}
        these = (f"window IN ({', '.join('?' * len(wanted))})", *wanted)
        rows = read_run(
            connection,
            row,
            {
                WindowRecord: these,
                TenantWindowRecord: ("window = ?", number),
                SecondRecord: ("second >= ? AND second < ?", first, last),
                VersionRecord: (),
                EventRecord: ("at_s >= ?", around.window.began_s),
                PlanRecord: these,
            },
        )
        windows = rows.windows
        if around.first.window not in wanted:
            windows = (around.first, *windows)
        return recorded_run(replace(rows, windows=windows, units=around.units))


def _chart_json(chart: Chart) -> Mapping[str, Any]:
    return {
        "title": chart.title,
        "scale": upright_title(chart),
        "summary": summary_of(chart),
        "height": height_of(chart),
        "legend": [_key(*each) for each in legend_of(chart)],
        "figure": figure_of(chart),
    }


def _key(name: str, paint: Paint, dashed: bool) -> Mapping[str, object]:
    shade = paint.shade
    tones: Sequence[str] = (paint.fill, shade.fill if paint.light else shade.light)
    return {"name": name, "tones": tones, "hatched": paint.hatched, "dashed": dashed}


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
        known = board(name)
    except MigratorError:  # a board that only another version knows
        return {"memory": 8, "compute": 7, "widths": {}}
    return {
        "memory": known.memory_slices,
        "compute": known.compute_slices,
        "widths": {gpcs: profile.memory_slices for gpcs, profile in known.plain_profiles.items()},
    }


@dataclass(frozen=True)
class _Asset:
    """A file as the server sends it."""

    data: bytes
    kind: str
    etag: str


@cache
def _assets() -> Mapping[str, _Asset]:
    """All files by name, read once: the name in a request is never used as a path."""
    traversables = [
        e for e in files("migrator.dashboard").joinpath("static").iterdir() if e.is_file()
    ]
    known = [
        (traversable, _KINDS[kind])
        for traversable in traversables
        if (kind := Path(traversable.name).suffix) in _KINDS
    ]
    return {each.name: _asset(each.read_bytes(), kind) for each, kind in known}


def _asset(data: bytes, kind: str) -> _Asset:
    return _Asset(data, kind, f'"{hashlib.sha256(data).hexdigest()[:16]}"')


@dataclass(frozen=True)
class _PlotlyFile:
    """plotly.js as the installed package has it."""

    data: bytes
    version: str

    @property
    def name(self) -> str:
        """Its name on the server, with the version, so that browsers may cache it for ever."""
        return f"plotly-{self.version}.js"


@cache
def _plotly() -> _PlotlyFile | None:
    """None if the package is not installed; it is located, not imported."""
    try:
        spec, number = find_spec("plotly"), version("plotly")
    except (PackageNotFoundError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return _PlotlyFile(path.read_bytes(), number)
    return None


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
            Route("/dashboard/plotly/{name}", self._plotly),
            Route("/dashboard/about", self._send_about),
            Route("/dashboard/sources", self._guarded(self._send_sources)),
            Route(run, self._guarded(self._whole)),
            Route(f"{run}/history", self._guarded(self._history)),
            Route(f"{run}/news", self._guarded(self._news)),
            Route(f"{run}/windows/{{window}}", self._guarded(self._window)),
            Route(f"{run}/windows/{{window}}/figures", self._guarded(self._figures)),
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

    async def _plotly(self, request: Request) -> Response:
        file = _plotly()
        if file is None or request.path_params["name"] != file.name:
            return refusal_response(404, f"plotly.js is not here; {_PLOTLY_MISSING}")
        headers = {"cache-control": _FOR_EVER, "content-length": str(len(file.data))}
        return StreamingResponse(_parts(file.data), headers=headers, media_type=_KINDS[".js"])

    async def _send_about(self, _: Request) -> Response:
        file = _plotly()
        plotly = {"plotly": file.name if file else None, "without": _PLOTLY_MISSING}
        return _json({**self._about, **plotly})

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

    async def _figures(self, request: Request) -> Response:
        source, run, window = self._named(request)
        return _json(await asyncio.to_thread(window_figures, source.path, run, window))

    def _named(self, request: Request) -> tuple[Source, int, int]:
        given = request.path_params
        source = _number(given["source"])
        if source >= len(self._sources):
            raise InputError("source: there is no such number; load the page again")
        return self._sources[source], _number(given["run"]), _number(given.get("window", "0"))

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


def _sent(request: Request, name: str, headers: dict[str, str] | None = None) -> Response:
    asset = _assets().get(name)
    if asset is None:
        return refusal_response(404, f"{name[:80]} is not part of the page; load the page again")
    sent = {"etag": asset.etag, "cache-control": "no-cache", **(headers or {})}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=sent)
    return Response(asset.data, headers={**sent, "content-type": asset.kind})


async def _parts(data: bytes) -> AsyncIterator[memoryview]:
    """Views of the data, so that slow clients hold no copies of it."""
    for begin in range(0, len(data), _PART_BYTES):
        yield memoryview(data)[begin : begin + _PART_BYTES]


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
        limits=affordable(Limits()),
        closing=page.close,
    )
    await server.start()
    try:
        listening(server.url)
        await stop.wait()
    finally:
        await server.stop()
