"""The page's routes on a real server: what they send, which requests may see it, how they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from support.live_records import write_run

from migrator.dashboard.routes import Dashboard, Source
from migrator.serving.http.access import Tokens, digest, require_admin, require_own_page
from migrator.serving.http.server import ApiServer

TOKEN = "a-token-for-the-administration"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shown") / "records.db"
    write_run(path)
    return path


@asynccontextmanager
async def server(path: Path, admin: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    tokens = Tokens(admin=digest(admin) if admin else None)

    def allow(request: Request) -> None:
        require_own_page(request, tokens)
        require_admin(request, tokens)

    page = Dashboard([Source("small", path)], allow=allow, needs_token=tokens.configured, acts=True)
    app = Starlette(routes=page.routes())
    listening = ApiServer(app, tokens=tokens, port=0, closing=page.close)
    await listening.start()
    try:
        async with httpx.AsyncClient(base_url=listening.url, timeout=20) as client:
            yield client
    finally:
        await listening.stop()


async def asked(path: Path, *routes: str, **headers: str) -> list[httpx.Response]:
    async with server(path) as client:
        return [await client.get(route, headers=headers) for route in routes]


def test_the_page_needs_nothing_from_elsewhere(path: Path) -> None:
    (page,) = asyncio.run(asked(path, "/"))
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http:" not in page.text.replace("http://www.w3.org", "")
    assert "https:" not in page.text
    names = [word.split('"')[0] for word in page.text.split("/dashboard/static/")[1:]]
    answers = asyncio.run(asked(path, *(f"/dashboard/static/{name}" for name in names)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(names) > 5


@pytest.mark.parametrize(
    "name", ["nothing.js", "..%2froutes.py", "page.py", "%2e%2e", f"{400 * 'a'}.js"]
)
def test_only_its_own_files_are_given(path: Path, name: str) -> None:
    (answer,) = asyncio.run(asked(path, f"/dashboard/static/{name}"))
    assert answer.status_code == 404


def test_sources_a_run_and_a_window(path: Path) -> None:
    sources, run, window = asyncio.run(
        asked(path, "/dashboard/sources", "/dashboard/0/1", "/dashboard/0/1/windows/1")
    )
    (shown,) = sources.json()["sources"]
    assert shown["runs"][0]["board_slices"] == {
        "memory": 8,
        "compute": 7,
        "widths": {"1": 1, "2": 2, "3": 4, "4": 4, "7": 8},
    }
    assert len(run.json()["windows"]) == 3
    opened = window.json()
    assert opened["seconds"]["photos"][0] == list(range(20, 40))
    assert {unit["state"] for unit in opened["units"]} >= {"training", "ready", "draining"}


@pytest.mark.parametrize(
    "route",
    [
        "/dashboard/1/1",
        "/dashboard/0/9",
        "/dashboard/0/1/windows/9",
        "/dashboard/0/1/news?after=nothing",
        "/dashboard/0/9/news?after=0.0.0.0.0.0.0.0.0",
        f"/dashboard/0/{2**64}",
        f"/dashboard/0/{2**64}/news?after=0.0.0.0.0.0.0.0.0",
        f"/dashboard/0/1/windows/{2**64}",
        f"/dashboard/{'9' * 5000}/1",
        "/dashboard/0/-1",
        "/dashboard/0/\u0663",
    ],
)
def test_what_is_not_there_is_one_sentence(path: Path, route: str) -> None:
    (answer,) = asyncio.run(asked(path, route))
    assert answer.status_code == 404
    assert "load the page again" in answer.json()["error"]


def test_what_it_shows_is_for_those_with_the_token(path: Path) -> None:
    async def tried() -> list[int]:
        async with server(path, TOKEN) as client:
            statuses = []
            for route in ("/", "/dashboard/about", "/dashboard/sources", "/dashboard/0/1"):
                statuses.append((await client.get(route)).status_code)
            right = {"authorization": f"Bearer {TOKEN}"}
            statuses.append((await client.get("/dashboard/0/1", headers=right)).status_code)
            wrong = {"authorization": "Bearer another"}
            statuses.append((await client.get("/dashboard/0/1/news", headers=wrong)).status_code)
            return statuses

    assert asyncio.run(tried()) == [200, 200, 401, 401, 200, 401]


def test_pages_of_other_sites_see_nothing(path: Path) -> None:
    routes = ("/dashboard/sources", "/dashboard/0/1")
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        answers = asyncio.run(asked(path, *routes, **headers))
        assert {answer.status_code for answer in answers} == {403}


def test_news_stream_to_an_open_page_until_the_server_ends(path: Path) -> None:
    async def ended() -> list[str]:
        lines: list[str] = []
        async with server(path) as client:
            marker = (await client.get("/dashboard/0/1")).json()["marker"]
            request = client.build_request("GET", f"/dashboard/0/1/news?after={marker}")
            stream = await client.send(request, stream=True)
            assert stream.headers["content-type"].startswith("text/event-stream")
            reading = asyncio.create_task(_all(stream, lines))
            while not any(line.startswith("data: ") for line in lines):
                await asyncio.sleep(0.01)
            stopping = client
        await asyncio.wait_for(reading, 20)
        assert stopping.is_closed
        return lines

    data = [event for event in asyncio.run(ended()) if event.startswith("data: ")]
    update = json.loads(data[0].removeprefix("data: "))
    assert "windows" not in update
    assert update["run"]["run"] == 1


async def _all(stream: httpx.Response, lines: list[str]) -> None:
    try:
        async for line in stream.aiter_lines():
            lines.append(line)
    except httpx.HTTPError:
        pass  # the client closed it first
