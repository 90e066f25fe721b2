"""Requests that are made to do harm: refused at once, with a status, at a bounded cost."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.api_server import CLASSES, SIDE, connected, image_body, received, running_server
from support.api_server import memory_mib as process_memory_mib
from support.http_client import HTTP, status_of
from support.waiting import until

INFER, FEEDBACK = "/v2/models/images/infer", "/v2/models/images/feedback"
SAMPLES = "/v2/models/images/samples"
SIZE = 3 * SIDE**2
LIMITS = {"header_bytes": 8192, "body_bytes": 2**20, "write_s": 1.0}
HEAD = f"POST {INFER} HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = f"{HEAD}transfer-encoding: chunked\r\n\r\n".encode()
DIGITS = "0" * 4999 + "1"
JSON = {"content-type": "application/json"}
TIMES = (-(10**400), "9" * 5000, -1, 0, 1e12, True, "fast", None)
"""None of them is a deadline."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(limits=LIMITS, unseen=True) as (url, _):
        yield url


@pytest.fixture(scope="module")
def narrow() -> Iterator[str]:
    """A server of few connections and a slow model."""
    limits = {"connections": 10, "header_s": 600.0, "keep_alive_s": 600, "write_s": 30.0}
    with running_server(latency_s=2.0, limits=limits) as (url, _):
        yield url


@pytest.fixture(scope="module")
def patient() -> Iterator[str]:
    """A server with little memory for bodies that waits long for them."""
    limits = {"body_bytes": 2**21, "bodies_bytes": 4 * 2**20, "body_s": 600.0}
    with running_server(limits=limits) as (url, _):
        yield url


def image(**fields: Any) -> dict[str, Any]:
    return image_body(1) | fields


def memory_mib(url: str, field: str = "VmRSS:") -> float:
    return process_memory_mib(status_of(url)["pid"], field)


@pytest.mark.parametrize(
    "data",
    [
        ["x" * 10**6, *[""] * 20],
        [[]] * SIZE,
        [{"a": 1}] * SIZE,
        [*[1] * (SIZE - 1), [1]],
        [*[1] * (SIZE - 1), 10**400],
        [*[1] * (SIZE - 1), "1"],
        [[[[1] * SIDE] * SIDE] * 2],
        7,
        {"a": [1] * SIZE},
    ],
    ids=range(9),
)
def test_data_is_nothing_but_whole_numbers_of_its_datatype(url: str, data: Any) -> None:
    before_mib = memory_mib(url, "VmHWM:")
    answer = HTTP.post(url + INFER, json=image_body(data=data))
    assert answer.status_code == 400, answer.text
    assert "inputs" in answer.json()["error"]
    # twenty strings of a million characters are 80 MB as a numpy array
    assert memory_mib(url, "VmHWM:") - before_mib < 40


def test_parameters_are_few_and_plain(url: str) -> None:
    nested = image(parameters={"a": [[]] * 1000})
    many = image(parameters={str(number): 1 for number in range(50_000)})
    for body in (nested, many):
        assert HTTP.post(url + INFER, json=body).status_code == 400
    body = image(parameters={"custom": "x", "binary_data_output": False, "timeout_ms": 5000})
    assert HTTP.post(url + INFER, json=body).status_code == 200


def flood(connection: socket.socket, part: bytes, limit: int) -> int:
    """Send parts until something comes back; how much was sent."""
    sent = 0
    connection.settimeout(0.01)
    while sent < limit:
        try:
            sent += connection.send(part)
            if connection.recv(1, socket.MSG_PEEK):
                break
        except TimeoutError:
            continue
    connection.settimeout(60)
    return sent


@pytest.mark.parametrize(
    "start",
    [
        b"GET /v2 HTTP/1.1\r\nhost: localhost\r\nx: ",
        b"GET /v2 HTTP/1.1\r\n",
        b"GET /",
        CHUNKED + b"1\r\na\r\n0\r\nx: ",
        CHUNKED + b"1;a=",
    ],
    ids=["value", "name", "path", "trailer", "chunk extension"],
)
def test_endless_headers_are_refused_while_they_come(url: str, start: bytes) -> None:
    with connected(url) as connection:
        connection.sendall(start)
        # well before the limit in seconds; the socket buffers of both ends hold some MiB
        sent = flood(connection, b"a" * 4096, 64 * 2**20)
        head = received(connection)
    assert head.startswith(b"HTTP/1.1 431 "), head[:200]
    assert sent < 16 * 2**20


def test_a_trailer_is_no_header(url: str) -> None:
    body = json.dumps(image()).encode()
    request = f"{HEAD}transfer-encoding: chunked\r\n"
    chunk = b"%x\r\n%s\r\n0\r\n" % (len(body), body)
    trailer = b"inference-header-content-length: 5\r\nx: y\r\n\r\n"
    with connected(url) as connection:
        connection.sendall(f"{request}connection: close\r\n\r\n".encode() + chunk + trailer)
        assert received(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_answered_although_it_is_sent_whole(
    url: str, chunked: bool
) -> None:
    size = 8 * 2**20
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (size, b" " * size) if chunked else b" " * size
    length = "transfer-encoding: chunked" if chunked else f"content-length: {size}"
    with connected(url) as connection:
        connection.sendall(f"{HEAD}{length}\r\n\r\n".encode())
        connection.sendall(body)  # a client that looks at nothing before it has sent all
        assert received(connection).startswith(b"HTTP/1.1 413 ")
    assert HTTP.post(url + SAMPLES, content=body, headers=JSON).status_code == 413


def test_those_that_do_not_read_are_let_go(url: str) -> None:
    request, before = b"GET /file HTTP/1.1\r\nhost: localhost\r\n\r\n", status_of(url)["files"]
    with ExitStack() as stack:
        every = [stack.enter_context(connected(url)) for _ in range(20)]
        for connection in every:
            connection.sendall(request)
        closing_too = stack.enter_context(connected(url))
        closing_too.sendall(
            request.replace(b"host: localhost", b"host: localhost\r\nconnection: close")
        )
        until(lambda: status_of(url)["files"] <= before)


def test_those_that_do_not_read_make_room_for_others(narrow: str) -> None:
    with ExitStack() as stack:
        for _ in range(10):
            held = stack.enter_context(connected(narrow))
            held.sendall(b"GET /file HTTP/1.1\r\nhost: localhost\r\n\r\n")
        # long before those that hold the connections are let go for standing still
        until(lambda: HTTP.get(f"{narrow}/v2/health/live").status_code == 200, limit_s=25)


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed it; what it sent before is left there."""
    readable, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
    except ConnectionError:
        return True


def read_whole_answer(connection: socket.socket) -> None:
    answer = HTTPResponse(connection)
    answer.begin()
    assert answer.status == 200
    answer.read()


@pytest.mark.parametrize("request_before", [b"", b"GET /v2 HTTP/1.1\r\nhost: localhost\r\n\r\n"])
def test_idle_connections_make_room_for_others(request_before: bytes) -> None:
    """On a server where nobody else has a connection."""
    limits = {"connections": 10, "header_s": 600.0, "keep_alive_s": 600}
    with running_server(limits=limits) as (url, _), ExitStack() as stack:
        held = [stack.enter_context(connected(url)) for _ in range(30)]
        until(lambda: sum(map(is_closed, held)) == 20)
        for connection in held:
            if request_before and not is_closed(connection):
                connection.sendall(request_before)
                read_whole_answer(connection)
        for _ in range(20):
            assert HTTP.get(f"{url}/v2/health/live").status_code == 200
        until(lambda: sum(map(is_closed, held)) > 20)


def test_a_request_that_is_served_keeps_its_connection(narrow: str) -> None:
    body = json.dumps(image_body()).encode()
    head = f"{HEAD}content-length: {len(body)}\r\n\r\n"
    before = status_of(narrow)["total"]["received"]
    with ExitStack() as stack:
        served = stack.enter_context(connected(narrow))
        served.sendall(head.encode() + body)
        until(lambda: status_of(narrow)["total"]["received"] > before, look_s=0.01)
        for _ in range(20):
            stack.enter_context(connected(narrow))
        assert status_of(narrow)["open"]  # the others came while it was served
        assert served.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_of_a_client_that_has_left_are_no_error(narrow: str) -> None:
    body = json.dumps(image_body()).encode()
    head = f"{HEAD}content-length: {len(body)}\r\n\r\n".encode()
    before = status_of(narrow)["total"]["received"]
    with connected(narrow) as connection:  # the server fails if it wrote a traceback
        connection.sendall((head + body) * 3)
        until(lambda: status_of(narrow)["total"]["received"] > before, look_s=0.01)
    until(lambda: not status_of(narrow)["open"])


def test_slow_bodies_do_not_take_all_memory(patient: str) -> None:
    head = f"{HEAD}content-length: 1000000\r\n\r\n"
    whole = json.dumps(image()).encode().ljust(10**6)
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(patient)) for _ in range(8)]
        for connection in slow:
            connection.sendall(head.encode() + whole[:900_000])
        refused: set[socket.socket] = set()

        def is_refused() -> bool:
            for connection in set(slow) - refused:
                connection.settimeout(0.01)
                with suppress(TimeoutError):
                    assert connection.recv(65536).startswith(b"HTTP/1.1 503 ")
                    refused.add(connection)
            return len(refused) >= 4

        until(is_refused)
        # the slow ones that are left give way to one that is sent at once
        until(lambda: HTTP.post(patient + INFER, content=whole).status_code == 200)


def test_a_body_is_no_larger_than_the_rows_that_a_model_takes(patient: str) -> None:
    body = json.dumps(image()).encode()
    assert HTTP.post(patient + INFER, content=body.ljust(10**6)).status_code == 200
    answer = HTTP.post(patient + INFER, content=body.ljust(2 * 10**6))
    assert answer.status_code == 413
    assert "larger than 1051648 bytes" in answer.json()["error"]


def test_slow_but_steady_readers_get_everything(url: str) -> None:
    """Slower than the write timeout allows for standing still, and longer than it."""
    with connected(url) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        connection.sendall(b"GET /file HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        received, begun_s = 0, time.monotonic()
        while part := connection.recv(262_144):
            received += len(part)
            time.sleep(len(part) / 4e6)
    assert received > 12 * 2**20
    assert time.monotonic() - begun_s > 2.5


@pytest.mark.parametrize(
    "given",
    [
        {"headers": {"inference-header-content-length": DIGITS}},
        {"headers": {"timeout-ms": "9" * 5000}},
        {"headers": {"timeout-ms": "-1"}},
        *({"parameters": {key: 10**400}} for key in ("timeout_ms", "timeout")),
        *({"parameters": {"timeout_ms": value}} for value in TIMES),
        {"parameters": {"binary_data_size": 10**400}},
    ],
    ids=range(6 + len(TIMES)),
)
def test_numbers_beyond_all_bounds_are_malformed(url: str, given: dict[str, Any]) -> None:
    body = image(parameters=given.get("parameters", {}), label=1)
    if "binary_data_size" in body["parameters"]:
        body["inputs"][0]["parameters"] = body.pop("parameters")
    answer = HTTP.post(url + INFER, json=body, headers={**JSON, **given.get("headers", {})})
    assert answer.status_code == 400, answer.text
    if "timeout-ms" not in given.get("headers", {}) and "parameters" not in given:
        answer = HTTP.post(url + FEEDBACK, json=body, headers={**JSON, **given["headers"]})
        assert answer.status_code == 400, answer.text


def test_unseen_classes_have_the_lowest_finite_score(url: str) -> None:
    answer = HTTP.post(url + INFER, json=image()).json()
    data = {output["name"]: output["data"] for output in answer["outputs"]}
    lowest = float(np.finfo(np.float32).min)
    assert data["scores"].count(lowest) == 1
    assert int(np.argmax(data["scores"])) == data["label"][0]
    body = image(parameters={"binary_data_output": True})
    reply = HTTP.post(url + INFER, json=body)
    raw = reply.content[int(reply.headers["inference-header-content-length"]) :]
    scores = np.frombuffer(raw[: 4 * CLASSES], "<f4")
    label = np.frombuffer(raw[scores.nbytes : scores.nbytes + 8], "<i8")
    assert np.isfinite(scores).all()
    assert scores.argmax() == label[0]


@pytest.mark.parametrize(("path", "label"), [(FEEDBACK, {"label": 1}), (SAMPLES, {"labels": [1]})])
def test_labels_are_not_taken_from_foreign_pages(
    url: str, path: str, label: dict[str, Any]
) -> None:
    body = json.dumps(image(**label)).encode()
    for headers, status in (
        ({"origin": "http://example.com"}, 403),
        ({"host": "example.com"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
        ({}, 200),
    ):
        answer = HTTP.post(url + path, content=body, headers={**JSON, **headers})
        assert answer.status_code == status, answer.text


READS = ("/v2/models/images", "/v2/models/images/stats", "/v2/models/stats", "/metrics")


def test_foreign_pages_learn_nothing_about_models(url: str) -> None:
    body = json.dumps(image()).encode()  # without a content type, as a page may send it
    headers = {"origin": "http://example.com"}
    answers = [HTTP.post(url + INFER, content=body, headers=headers)]
    answers.append(HTTP.post(f"{url}/v2/repository/index", headers=headers))
    answers += [HTTP.get(url + path, headers=headers) for path in READS]
    assert {answer.status_code for answer in answers} == {403}
    assert HTTP.get(f"{url}/v2/health/live", headers=headers).status_code == 200


NUMBERS = st.sampled_from(
    [0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(10**400), 1.5, 1e308, float("nan"), float("inf")]
)
VALUES = st.one_of(
    NUMBERS,
    st.none(),
    st.booleans(),
    st.sampled_from(["", "x", "9" * 5000, "\u0000", "\udc80", "é"]),
    st.lists(NUMBERS, max_size=3),
    st.just([[]] * 100),
    st.just({"a": {"b": []}}),
)
FIELDS = ["data", "shape", "datatype", "name", "parameters"]
TOP = ["id", "label", "row", "inputs", "outputs", "parameters", "action", "tenant", "admit"]
PARAMETER_NAMES = ["timeout_ms", "timeout", "binary_data_size", "binary_data_output"]
TEXTS = st.sampled_from(
    ["", "0", "-1", "1e999", "nan", "9" * 5000, DIGITS, "\xb2", "bytes=0-" + "9" * 5000, "[", "*/*"]
)
HEADERS = [
    "inference-header-content-length",
    "timeout-ms",
    "content-type",
    "content-encoding",
    "host",
    "origin",
    "range",
    "if-range",
    "accept",
    "authorization",
    "x-request-id",
    "expect",
    "last-event-id",
]
PATHS = [
    INFER,
    FEEDBACK,
    "/v2/models/texts/infer",
    f"/v2/models/images/versions/{DIGITS}/infer",
    "/v2/models/%00%ff/ready",
    "/v2/repository/index",
    "/v2",
    "/metrics",
    "/metrics?" + "name[]=a&" * 50,
    "/admin/status",
    "/admin/actions",
    "/admin/tenants",
    "/v2/repository/models/images/load",
    "/v2/repository/models/%00/unload",
    "/file",
    "/%2e%2e/etc/passwd",
    "//",
]


def mostly(likely: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The other one in ten times; `one_of` has no weights."""
    return st.integers(0, 9).flatmap(lambda drawn: other if drawn == 9 else likely)


@st.composite
def hostile_bodies(draw: st.DrawFn) -> bytes:
    """A request that is fine, with some parts put wrong."""
    body = image(label=1)
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=1)):
        body["inputs"][0][name] = draw(VALUES)
    for name in draw(st.lists(st.sampled_from(TOP), max_size=1)):
        body[name] = draw(VALUES)
    for name in draw(st.lists(st.sampled_from(PARAMETER_NAMES), max_size=2)):
        body["parameters"] = {name: draw(VALUES)}
    text = json.dumps(body).encode("utf-8", "surrogatepass")
    return text[: draw(mostly(st.just(len(text)), st.just(50)))]


def test_hostile_requests_are_refused_and_never_an_error(url: str) -> None:
    """Neither 500 nor a traceback, which the server's end looks for in its log."""
    headers = st.dictionaries(st.sampled_from(HEADERS), TEXTS, max_size=1)
    bodies = mostly(hostile_bodies(), st.binary(max_size=50))

    with httpx.Client(base_url=url) as client:

        @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            method=mostly(st.just("POST"), st.sampled_from(["GET", "HEAD", "PUT"])),
            path=mostly(st.sampled_from([INFER, FEEDBACK]), st.sampled_from(PATHS)),
            headers=headers,
            body=bodies,
        )
        def search(method: str, path: str, headers: dict[str, str], body: bytes) -> None:
            sent = {**JSON, **headers}
            raw = {name.encode(): value.encode("latin-1") for name, value in sent.items()}
            answer = client.request(method, path, headers=raw, content=body)
            assert answer.status_code < 500 or answer.status_code in (503, 504), answer.text

        search()
    assert HTTP.get(f"{url}/v2/health/ready").status_code == 200
