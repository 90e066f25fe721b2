"""Clients that leave, stall or send garbage get a refusal and never stop the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.api_server import connected, image_body, received, running_server
from support.http_client import HTTP, status_of
from support.waiting import LIMIT_S, until

LIMITS = {"body_bytes": 4096, "body_s": 0.5, "header_bytes": 4096, "header_s": 0.5}
PATH = "/v2/models/images/infer"
BODY = json.dumps(image_body()).encode()
POST = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\n".encode()
REQUEST = POST + f"content-length: {len(BODY)}\r\n\r\n".encode() + BODY


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(latency_s=0.5, slo_s=20.0, limits=LIMITS | {"connections": 30}) as (url, _):
        yield url


@pytest.fixture(scope="module")
def idle() -> Iterator[str]:
    with running_server(ready=["texts"], slo_s=1.0, queue=2) as (url, _):
        yield url


@pytest.fixture(scope="module")
def holding() -> Iterator[str]:
    """A server whose requests for images wait."""
    limits = {"connections": 12}
    with running_server(ready=["texts"], slo_s=LIMIT_S, limits=limits) as (url, _):
        yield url


@pytest.fixture(autouse=True)
def _still_alive(url: str) -> Iterator[None]:
    yield
    assert HTTP.get(f"{url}/v2/health/live").status_code == 200


def require_refusal(answer: bytes, status: int) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert json.loads(body)["error"]


def test_those_that_leave_take_their_requests_along(holding: str) -> None:
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(connected(holding)).sendall(REQUEST)
        until(lambda: status_of(holding)["waiting"] == 10)
    until(lambda: status_of(holding)["open"] == 0)
    assert status_of(holding)["waiting"] == 0
    assert status_of(holding)["total"]["dropped"] == 10


def test_half_a_body_and_gone(url: str) -> None:
    before = status_of(url)["total"]
    for _ in range(5):
        with connected(url) as connection:
            connection.sendall(POST + b"content-length: 400\r\n\r\n" + BODY[:100])
    assert status_of(url)["total"]["received"] == before["received"]


def test_headers_that_stop_on_a_used_connection(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):  # head and body may come apart
            answer += connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /v2 HTTP/1.1\r\nhos")
        require_refusal(received(connection), 408)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"hello\r\n\r\n", 400),
        (b"GET /v2 HTTP/9.9\r\n\r\n", 400),
        (POST + b"content-length: many\r\n\r\n", 400),
        (POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\n", 400),
        (POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        # silence after a part of the headers or of the body
        (b"", 408),
        (b"GET /v2 HT", 408),
        (b"GET /v2 HTTP/1.1\r\nhost: localhost\r\nx: ", 408),
        (POST + b"content-length: 400\r\n\r\n" + BODY[:100], 408),
        (POST + b"content-length: 99999999\r\n\r\n", 413),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 431),
        (b"GET /v2 HTTP/1.1\r\n" + b"x: y\r\n" * 3000 + b"\r\n", 431),
    ],
    ids=range(14),
)
def test_what_is_no_request_is_refused(url: str, sent: bytes, status: int) -> None:
    with connected(url) as connection:
        connection.sendall(sent)
        require_refusal(received(connection), status)


def test_a_body_that_grows_too_large(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
        connection.sendall((b"400\r\n" + b"a" * 1024 + b"\r\n") * 5)
        require_refusal(received(connection), 413)


def test_a_connection_is_refused_while_all_others_are_served(holding: str) -> None:
    def refused() -> bool:
        with connected(holding) as last:
            last.sendall(REQUEST)
            answer = HTTP.get(f"{holding}/v2/health/live")
        assert answer.status_code == 200 or "too many connections" in answer.json()["error"]
        return answer.status_code == 503

    with ExitStack() as stack:
        for _ in range(11):
            stack.enter_context(connected(holding)).sendall(REQUEST)
        until(lambda: status_of(holding)["waiting"] == 11)
        until(refused)
    until(lambda: HTTP.get(f"{holding}/v2/health/live").status_code == 200)


def test_without_an_instance_nothing_is_ready(idle: str) -> None:
    for path in ("/v2/health/ready", "/v2/models/images/ready"):
        assert HTTP.get(idle + path).status_code == 503
    assert HTTP.get(f"{idle}/v2/models/texts/ready").status_code == 200
    answer = HTTP.post(idle + PATH, content=BODY)
    assert answer.status_code == 503
    assert "no instance was ready" in answer.json()["error"]


def test_a_full_queue_refuses_at_once(idle: str) -> None:
    held = POST + f"timeout-ms: 60000\r\ncontent-length: {len(BODY)}\r\n\r\n".encode() + BODY
    with connected(idle) as first, connected(idle) as second:
        for connection in (first, second):
            connection.sendall(held)
        until(lambda: status_of(idle)["waiting"] == 2)
        answer = HTTP.post(idle + PATH, content=BODY)
    assert answer.status_code == 429
    assert "2 requests wait already" in answer.json()["error"]
    until(lambda: status_of(idle)["open"] == 0)
