"""Texts that cost more to encode than to send: counted first, and dropped with their client."""

from __future__ import annotations

import json
import os
import struct
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from select import select
from socket import socket
from typing import Any

import httpx
import pytest
from support.api_server import connected
from support.waiting import LIMIT_S, until

from migrator.serving.http.encoding import MAX_ENCODING

INFER, SAMPLES = "/v2/models/texts/infer", "/v2/models/texts/samples"
FEEDBACK = "/v2/models/texts/feedback"
MANY = 100_000


def texts_body(texts: list[str], rows: int, **fields: Any) -> dict[str, Any]:
    tensor = {"name": "input", "datatype": "BYTES", "shape": [rows], "data": texts}
    return {"inputs": [tensor], **fields}


def encoded(client: httpx.Client) -> int:
    return int(client.get("/admin/status").json()["encoded"])


@pytest.mark.parametrize("rows", [MANY, 1])
@pytest.mark.parametrize(
    ("path", "fields"),
    [(INFER, {}), (FEEDBACK, {"label": 1}), (SAMPLES, {"labels": [1]})],
    ids=["infer", "feedback", "samples"],
)
@pytest.mark.parametrize("text", ["", "\\"], ids=["empty", "backslash"])
def test_texts_are_counted_before_they_are_encoded(
    client: httpx.Client, path: str, fields: dict[str, Any], rows: int, text: str
) -> None:
    before = encoded(client)
    answer = client.post(path, json=texts_body([text] * MANY, rows, **fields))
    assert answer.status_code == 400
    assert "rows" in answer.json()["error"]
    assert encoded(client) == before


def test_binary_texts_are_counted_before_they_are_encoded(client: httpx.Client) -> None:
    before, tail = encoded(client), struct.pack("<I", 0) * MANY
    tensor = {"name": "input", "datatype": "BYTES", "shape": [1]}
    head = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": len(tail)}}]})
    headers = {"inference-header-content-length": str(len(head))}
    answer = client.post(INFER, content=head.encode() + tail, headers=headers)
    assert answer.status_code == 400
    assert "more than 1" in answer.json()["error"]
    assert encoded(client) == before


def test_quotes_inside_of_texts_are_no_texts(client: httpx.Client) -> None:
    texts = ['"quoted" and \\ and \\"', '"' * 20]
    assert client.post(INFER, json=texts_body(texts, 2)).status_code == 200


def test_encoding_ends_at_the_deadline(client: httpx.Client, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    body = texts_body([f"{pipe} " + "long " * 10_000], 1, parameters={"timeout_ms": 100})
    answer = client.post(INFER, json=body)  # while nothing is written to the pipe
    assert answer.status_code == 504
    assert "texts were encoded" in answer.json()["error"]
    pipe.write_bytes(b"")


def test_requests_beyond_those_that_may_wait_to_be_encoded_are_refused(
    client: httpx.Client, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    texts = [f"{pipe} " + "long " * 5_000]
    body = json.dumps(texts_body(texts, 1, label=1)).encode()
    head = f"POST {FEEDBACK} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    url = str(client.base_url).rstrip("/")
    with ExitStack() as stack:
        waiting = [stack.enter_context(connected(url)) for _ in range(MAX_ENCODING + 1)]
        for connection in waiting:
            connection.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + body)
        (answered, *_), _, _ = select(waiting, [], [], LIMIT_S)  # nothing is written to the pipe
        assert b" 503 " in answered.recv(100)
        waiting.remove(answered)
        for connection in waiting:
            until(partial(is_answered, connection, pipe), look_s=0)
            assert b" 200 " in connection.recv(100)


def is_answered(connection: socket, pipe: Path) -> bool:
    """Looked at after whoever reads the pipe, if somebody does, got its end."""
    with suppress(OSError):
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    return bool(select([connection], [], [], 0.1)[0])


def test_nothing_more_is_encoded_for_a_client_that_left(
    client: httpx.Client, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    status: dict[str, int] = client.get("/admin/status").json()
    before, files, rows = status["encoded"], status["files"], 1000
    texts = [f"{pipe} " + "long " * 5_000, *["text"] * (rows - 1)]
    body = json.dumps(texts_body(texts, rows, labels=[1] * rows)).encode()
    head = f"POST {SAMPLES} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    url = str(client.base_url).rstrip("/")
    with connected(url) as connection:
        connection.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + body)
        until(lambda: encoded(client) > before)  # the first rows wait for the pipe
    # until the server knows that the client left
    until(lambda: client.get("/admin/status").json()["files"] <= files)
    pipe.write_bytes(b"")
    long = texts_body(["long " * 10_000], 1)
    assert client.post(INFER, json=long).status_code == 200
    assert encoded(client) - before < rows // 2
