"""A gateway before real servers: what passes through, and how a stale map heals."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from support.waiting import LIMIT_S

from migrator.cluster.fleet import forwarding
from migrator.cluster.fleet.cluster_map import ClusterMap
from migrator.cluster.fleet.gateway import Gateway
from migrator.cluster.fleet.map_source import MapProvider, MapSource, from_gateway, plain_overview
from migrator.core.errors import MigratorError
from migrator.serving.http.access import Tokens, digest
from migrator.serving.http.requests import ClientLimits
from migrator.serving.http.server import ApiServer

ADMIN = "the administration's token"


class FakeHead:
    """A head that says what the test wants, or nothing."""

    def __init__(self, newest: ClusterMap) -> None:
        self.newest: ClusterMap | None = newest

    def map(self) -> ClusterMap:
        if self.newest is None:
            raise MigratorError("the head is gone")
        return self.newest

    def overview(self) -> Mapping[str, Any]:
        return plain_overview(self.map())


class Daemon:
    """A server that says what it got; or that it does not have the tenant."""

    def __init__(self) -> None:
        self.status, self.unknown, self.is_ready = 200, False, True
        self.asked = 0
        self.hold: asyncio.Event | None = None
        self.left = asyncio.Event()
        routes = [
            Route("/v2/health/ready", self._ready),
            Route("/v2/models/{name}", self._model),
            Route("/v2/models/{name}/infer", self._infer, methods=["POST"]),
            Route("/v2/models/{name}/feedback", self._infer, methods=["POST"]),
            Route("/v2/models/{name}/samples", self._infer, methods=["POST"]),
            Route("/v2/repository/index", self._index, methods=["POST"]),
        ]
        self.server = ApiServer(Starlette(routes=routes), tokens=Tokens(), port=0)

    async def _infer(self, request: Request) -> Response:
        self.asked += 1
        while self.hold is not None and not self.hold.is_set():
            if await request.is_disconnected():
                self.left.set()
            await asyncio.sleep(0.01)
        if self.status != 200:
            return JSONResponse({"error": "not here"}, self.status)
        if self.unknown:
            return JSONResponse({"error": "id: send its inputs"}, 404)
        body = await request.body()
        return Response(
            body[::-1],
            headers={
                "x-port": str(self.server.port),
                "x-token": request.headers.get("authorization", ""),
                "x-query": request.url.query,
                "x-host": request.headers["host"],
                "inference-header-content-length": "3",
            },
            media_type="application/octet-stream",
        )

    async def _ready(self, _: Request) -> Response:
        return JSONResponse({"ready": self.is_ready}, 200 if self.is_ready else 503)

    async def _model(self, _: Request) -> Response:
        if self.status != 200:
            return JSONResponse({"error": "not here"}, self.status)
        return JSONResponse({"name": "photos"})

    async def _index(self, _: Request) -> Response:
        return JSONResponse([{"name": "photos", "state": "READY"}, {"name": "old", "state": ""}])


class World:
    """Two daemons and a gateway, all of which listen."""

    def __init__(self, here: Daemon, there: Daemon, head: FakeHead, source: MapSource) -> None:
        self.here, self.there, self.head, self.source = here, there, head, source
        self.client = httpx.AsyncClient(timeout=60)
        self.url = ""

    def move(self) -> None:
        """photos lives on the other one from now on."""
        old = self.source.current
        homes = {"photos": self.there.server.url}
        self.head.newest = ClusterMap(old.epoch, old.version + 1, homes, {}, old.pages, old.admin)

    async def move_from(self, url: str) -> None:
        """The gateway's map has photos at `url`; the head has moved it to the other daemon."""
        pages = {**self.source.current.pages, "g0": url}
        self.head.newest = ClusterMap(1, 2, {"photos": url}, {}, pages)
        await self.source.refresh()
        self.head.newest = ClusterMap(1, 3, {"photos": self.there.server.url}, {}, pages)

    async def feedback(self, route: str = "feedback", **keys: Any) -> httpx.Response:
        return await self.client.post(f"{self.url}/v2/models/photos/{route}", **keys)

    async def infer(self, tenant: str = "photos", **keys: Any) -> httpx.Response:
        path = f"/v2/models/{tenant}/infer"
        return await self.client.post(self.url + path, **{"content": b"abc", **keys})


@asynccontextmanager
async def gateway_world(
    admin: str | None = None, limits: ClientLimits | None = None
) -> AsyncIterator[World]:
    here, there = Daemon(), Daemon()
    await asyncio.gather(here.server.start(), there.server.start())
    pages = {"g1": here.server.url, "g2": there.server.url}
    cluster_map = ClusterMap(
        1, 1, {"photos": here.server.url}, {"mail": "it is on its way"}, pages, admin
    )
    head = FakeHead(cluster_map)
    source = MapSource(MapProvider(head.map, head.overview))
    await source.refresh()
    gateway = Gateway(source, limits)
    server = ApiServer(gateway, tokens=Tokens(admin=admin), port=0, limits=limits)
    await server.start()
    world = World(here, there, head, source)
    world.url = server.url
    try:
        yield world
    finally:
        await world.client.aclose()
        gateway.forwarder.close()
        servers = (server, here.server, there.server)
        await asyncio.gather(*(listening.stop() for listening in servers))


Test = Callable[..., Awaitable[None]]


def with_gateway(**keys: Any) -> Callable[[Test], Test]:
    """Run an asynchronous test with a gateway before two daemons, its first parameter."""

    def decorate(test: Test) -> Test:
        async def run(**parameters: Any) -> None:
            async with gateway_world(**keys) as world:
                await test(world, **parameters)

        signature = inspect.signature(test)
        others = [
            parameter for parameter in signature.parameters.values() if parameter.name != "world"
        ]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate


@with_gateway()
async def test_bodies_tokens_queries_and_headers_pass_through_untouched(world: World) -> None:
    headers = {"authorization": "Bearer secret", "inference-header-content-length": "3"}
    body = bytes(range(256)) * 1000
    reply = await world.infer(content=body, headers=headers, params={"a": "b c"})
    assert reply.content == body[::-1]
    assert reply.headers["x-token"] == "Bearer secret"
    assert reply.headers["x-query"] == "a=b+c"
    assert reply.headers["x-host"] == f"127.0.0.1:{world.here.server.port}"
    assert reply.headers["inference-header-content-length"] == "3"
    assert reply.headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize("status", [404, 503])
@with_gateway()
async def test_a_stale_map_heals_itself_where_the_daemon_has_let_go_of_the_tenant(
    world: World, status: int
) -> None:
    world.here.status = status
    assert (await world.infer()).status_code == 503  # wherever it is by now, ask again
    assert world.here.asked == 1
    world.move()
    reply = await world.infer()
    assert reply.headers["x-port"] == str(world.there.server.port)
    assert (world.here.asked, world.there.asked) == (2, 1)
    assert (await world.infer()).status_code == 200
    assert world.here.asked == 2


@with_gateway()
async def test_a_label_of_a_request_that_its_daemon_does_not_know_is_refused_as_that_says(
    world: World,
) -> None:
    world.here.unknown = True
    reply = await world.feedback(json={"id": "r1", "label": 1})
    assert (reply.status_code, reply.json()["error"]) == (404, "id: send its inputs")


@with_gateway()
async def test_a_daemon_that_is_gone_is_gone_around(world: World) -> None:
    assert (await world.infer()).status_code == 200
    await world.here.server.stop()
    reply = await world.infer()
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "1"
    assert "does not answer" in reply.json()["error"]
    world.move()
    assert (await world.infer()).headers["x-port"] == str(world.there.server.port)


@with_gateway()
async def test_a_request_on_a_machine_that_dies_without_a_word_is_sent_once_more(
    world: World,
) -> None:
    """Nothing closes its connection; the map does not have the machine any more."""
    world.here.hold = asyncio.Event()
    waiting = asyncio.create_task(world.infer())
    while not world.here.asked:
        await asyncio.sleep(0.01)
    old = world.source.current
    homes = {"photos": world.there.server.url}
    world.head.newest = ClusterMap(1, 2, homes, {}, {"g2": old.pages["g2"]})
    await world.source.refresh()
    assert (await waiting).headers["x-port"] == str(world.there.server.port)
    world.here.hold.set()


@with_gateway()
async def test_it_serves_on_with_its_last_map_while_the_head_is_gone(world: World) -> None:
    world.head.newest = None
    await world.source.refresh()
    assert world.source.failures == 1
    assert (await world.infer()).status_code == 200
    assert (await world.client.get(f"{world.url}/cluster")).status_code == 503
    metrics = (await world.client.get(f"{world.url}/metrics")).text
    assert "migrator_gateway_map_failures 1.0" in metrics
    assert "migrator_cluster" not in metrics
    world.head.newest = ClusterMap(0, 9)  # of a head that leads no more
    await world.source.refresh()
    assert (await world.infer()).status_code == 200


@with_gateway()
async def test_tenants_that_are_away_differ_from_unknown_ones(world: World) -> None:
    away, unknown = await world.infer("mail"), await world.infer("unknown")
    assert (away.status_code, away.headers["retry-after"]) == (503, "1")
    assert "it is on its way" in away.json()["error"]
    assert unknown.status_code == 404
    ready = await world.client.get(f"{world.url}/v2/health/ready")
    assert (ready.status_code, "mail" in ready.text) == (503, True)
    assert (await world.client.get(f"{world.url}/v2/health/live")).status_code == 200
    assert (await world.client.get(f"{world.url}/admin/status")).status_code == 404
    index = await world.client.post(f"{world.url}/v2/repository/index", json={})
    assert [model["name"] for model in index.json()] == ["photos"]


@with_gateway()
async def test_it_is_ready_only_while_something_is_served(world: World) -> None:
    path = f"{world.url}/v2/health/ready"
    pages = world.source.current.pages
    here, there = world.here.server.url, world.there.server.url
    world.head.newest = ClusterMap(1, 2, {"photos": here, "mail": there}, {}, pages)
    await world.source.refresh()
    assert (await world.client.get(path)).status_code == 200
    world.here.is_ready = False  # its tenants are drained
    assert (await world.client.get(path)).status_code == 200
    world.there.is_ready = False
    assert (await world.client.get(path)).status_code == 503
    world.here.is_ready = True
    await world.there.server.stop()
    gone = await world.client.get(path)
    assert (gone.status_code, "mail" in gone.text, "photos" in gone.text) == (503, True, False)


@with_gateway()
async def test_a_tenant_that_two_daemons_have_is_listed_once_by_its_own(world: World) -> None:
    old = world.source.current
    here, there = world.here.server.url, world.there.server.url
    homes = {"mail": here, "photos": there}  # each of both still lists photos
    world.head.newest = ClusterMap(1, 2, homes, {}, old.pages)
    await world.source.refresh()
    index = await world.client.post(f"{world.url}/v2/repository/index", json={})
    assert index.json() == [{"name": "photos", "state": "READY"}]


@with_gateway(limits=ClientLimits(body_bytes=1000))
async def test_bodies_beyond_the_limit_are_refused_before_they_are_sent_on(world: World) -> None:
    reply = await world.infer(content=bytes(2000))
    assert reply.status_code == 413
    assert world.here.asked == 0
    assert (await world.infer(content=bytes(1000))).status_code == 200


@with_gateway(admin=digest(ADMIN))
async def test_the_cluster_is_shown_to_the_administration_alone(world: World) -> None:
    right, wrong = ({"authorization": f"Bearer {token}"} for token in (ADMIN, "another token"))
    for path in ("/cluster", "/cluster/map", "/metrics"):
        assert (await world.client.get(world.url + path)).status_code == 401
        assert (await world.client.get(world.url + path, headers=wrong)).status_code == 401
    status = (await world.client.get(f"{world.url}/cluster", headers=right)).json()
    assert status["tenants"]["photos"]["gpu"] == "g1"
    response = await world.client.get(f"{world.url}/cluster/map", headers=right)
    assert json.loads(response.content)["homes"] == {"photos": world.here.server.url}
    other = from_gateway(world.url, ADMIN)  # what another gateway learns from this one
    assert await asyncio.to_thread(other.map) == world.source.current
    assert await asyncio.to_thread(other.overview) == status
    await world.infer()
    metrics = (await world.client.get(f"{world.url}/metrics", headers=right)).text
    assert 'migrator_gateway_requests_total{code="200",tenant="photos"} 1.0' in metrics
    assert 'migrator_cluster_gpu_up{gpu="g1",node=""} 1.0' in metrics


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://example.com"}, {"host": "example.com"}, {"sec-fetch-site": "cross-site"}],
)
@with_gateway()
async def test_without_tokens_pages_of_others_neither_see_nor_ask_nor_teach(
    world: World, headers: dict[str, str]
) -> None:
    for path in ("/cluster", "/cluster/map", "/metrics"):
        assert (await world.client.get(world.url + path)).status_code == 200
        assert (await world.client.get(world.url + path, headers=headers)).status_code == 403
    for path in ("/v2/models/photos", "/v2/models/stats"):
        assert (await world.client.get(world.url + path, headers=headers)).status_code == 403
    assert (await world.infer(headers=headers)).status_code == 403
    assert (await world.client.get(f"{world.url}/v2/health/live", headers=headers)).is_success
    label = b'{"label": 1}'
    for route in ("feedback", "samples"):
        asked = world.here.asked
        assert (await world.feedback(route, content=label, headers=headers)).status_code == 403
        assert world.here.asked == asked
        assert (await world.feedback(route, content=label)).status_code == 200


@pytest.mark.parametrize(
    ("length", "body"),
    [("0" * 4999 + "3", b'{"label": 1}'), ("12", b"[" * 100_000), ("", b'{"a":' * 100_000)],
)
@with_gateway()
async def test_labels_that_are_none_pass_through_to_be_refused(
    world: World, length: str, body: bytes
) -> None:
    headers = {"inference-header-content-length": length}
    answer = await world.feedback(content=body, headers=headers)
    assert answer.status_code == 200  # this daemon takes everything
    assert world.here.asked == 1


@asynccontextmanager
async def dropping() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A daemon that reads requests and dies before it answers: its address, what it got."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        got.append(await reader.readexactly(length))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", got
    finally:
        server.close()


@pytest.mark.parametrize(
    ("label", "sent_again"),
    [({"label": 1, "id": "r1"}, True), ({"label": 1, "inputs": []}, False)],
)
@pytest.mark.parametrize("route", ["feedback", "samples"])
@with_gateway()
async def test_a_label_that_may_be_kept_is_sent_again_only_where_it_counts_once(
    world: World, route: str, label: dict[str, Any], sent_again: bool
) -> None:
    async with dropping() as (url, got):
        await world.move_from(url)
        reply = await world.feedback(route, json=label)
        assert len(got) == 1
        assert world.there.asked == sent_again
        assert reply.status_code == (200 if sent_again else 503)
        if not sent_again:
            assert "send it again with an id" in reply.json()["error"]


@with_gateway()
async def test_a_machine_that_says_nothing_at_all_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its power has gone: the connection is not refused."""
    monkeypatch.setattr(forwarding, "CONNECT_S", 0.2)
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for connection in (first, second):  # there is no place left for a third
            connection.setblocking(False)
            connection.connect_ex(deaf.getsockname())
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        await world.move_from(url)
        assert (await world.infer()).headers["x-port"] == str(world.there.server.port)


@with_gateway()
async def test_a_client_that_leaves_frees_the_daemon_too(world: World) -> None:
    world.here.hold = asyncio.Event()
    waiting = asyncio.create_task(world.infer())
    while not world.here.asked:
        await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait_for(world.here.left.wait(), LIMIT_S)
    world.here.hold.set()


@with_gateway()
async def test_half_a_body_is_not_sent_on(world: World) -> None:
    host, _, port = world.url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = b"POST /v2/models/photos/infer HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n"
    writer.write(head + b"half")
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.close()
    assert (await world.infer()).status_code == 200
    assert world.here.asked == 1


@with_gateway()
async def test_head_is_answered_without_a_body(world: World) -> None:
    reply = await world.client.head(f"{world.url}/v2/models/photos")
    assert (reply.status_code, reply.content) == (200, b"")


def test_a_refresh_does_not_return_an_answer_that_was_requested_earlier() -> None:
    """The head had answered already, but not arrived, when the tenant moved."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(FakeHead):
        def map(self) -> ClusterMap:
            newest = super().map()
            begun.set()
            assert go_on.wait(LIMIT_S)
            return newest

    async def inside() -> None:
        head = Slow(ClusterMap(1, 1, {"photos": "http://old"}))
        source = MapSource(MapProvider(head.map, head.overview))
        first = asyncio.create_task(source.refresh())
        await asyncio.to_thread(begun.wait, 10)
        head.newest = ClusterMap(1, 2, {"photos": "http://new"})
        second = asyncio.create_task(source.refresh())
        await asyncio.sleep(0.05)
        go_on.set()
        await asyncio.gather(first, second)
        assert source.current.homes == {"photos": "http://new"}

    asyncio.run(inside())
