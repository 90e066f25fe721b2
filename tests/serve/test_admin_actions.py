"""POST /admin/actions over real HTTP: what is asked for, by whom, and from which page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from support.api_server import running_server

PATH = "/admin/actions"
PAUSE = {"action": "pause", "tenant": None}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with running_server() as (url, _), httpx.Client(base_url=url) as it:
        yield it


@pytest.fixture(scope="module")
def guarded() -> Iterator[httpx.Client]:
    tokens = {"images": "secret-i", "texts": "secret-t"}
    with (
        running_server(tokens=tokens, admin="secret-a") as (url, _),
        httpx.Client(base_url=url) as it,
    ):
        yield it


def acted(client: httpx.Client, **headers: str) -> list[Any]:
    found: list[Any] = client.get("/admin/status", headers=headers).json()["acted"]
    return found


def sent(client: httpx.Client, body: object, headers: Mapping[str, str] | None = None) -> int:
    answer = client.post(PATH, json=body, headers=dict(headers or {}))
    assert set(answer.json()) == ({"outcome", "words"} if answer.is_success else {"error"})
    return answer.status_code


def test_an_action_is_done_and_told_in_words(client: httpx.Client) -> None:
    answer = client.post(PATH, json=PAUSE)
    assert answer.json() == {"outcome": "done", "words": "pause in words"}
    assert client.post(PATH, json={"action": "drain", "tenant": "images"}).status_code == 200
    assert client.post(PATH, json={"action": "replan"}).status_code == 200
    assert acted(client)[-3:] == [
        ["pause", None, "api"],
        ["drain", "images", "api"],
        ["replan", None, "api"],
    ]


def test_who_asked_is_told_by_its_headers(client: httpx.Client) -> None:
    own = str(client.base_url).rstrip("/")
    page = {"origin": own, "sec-fetch-site": "same-origin"}
    assert sent(client, PAUSE, page) == 200
    assert sent(client, PAUSE, {"user-agent": "migrator-cli/1"}) == 200
    assert [each[2] for each in acted(client)[-2:]] == ["page", "cli"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"action": "explode"}, 400, "pause, resume, replan, roll-back, drain, undrain"),
        ({"action": "pause", "tenant": "images"}, 400, "leave it out"),
        ({"action": "drain"}, 400, "images, texts"),
        ({"action": "drain", "tenant": "nobody"}, 404, "images, texts"),
        ({"action": "drain", "tenant": 3}, 400, "openapi"),
        ({"action": "pause", "when": "now"}, 400, "when"),
        ({}, 400, "action"),
        ([], 400, "openapi"),
        ({"action": "roll-back", "tenant": "texts"}, 409, "roll-back in words"),
        ({"action": "roll-back", "tenant": "images"}, 500, "roll-back in words"),
    ],
)
def test_what_cannot_be_done_says_why(
    client: httpx.Client, body: object, status: int, words: str
) -> None:
    answer = client.post(PATH, json=body)
    assert answer.status_code == status
    assert words in answer.json()["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"action": "pause"', b"null"])
def test_a_body_that_is_no_message(client: httpx.Client, body: bytes) -> None:
    before = len(acted(client))
    headers = {"content-type": "application/json"}
    assert client.post(PATH, content=body, headers=headers).status_code == 400
    assert len(acted(client)) == before


@pytest.mark.parametrize(
    "kind",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
)
def test_what_a_foreign_page_may_send_unasked_is_not_read(
    client: httpx.Client, kind: str | None
) -> None:
    """These types need no preflight; so does a body without any, from an ArrayBuffer."""
    before = len(acted(client))
    headers = {} if kind is None else {"content-type": kind}
    answer = client.post(PATH, content=json.dumps(PAUSE), headers=headers)
    assert answer.status_code == 415
    assert len(acted(client)) == before


def test_a_preflight_is_answered_without_leave(client: httpx.Client) -> None:
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    answer = client.options(PATH, headers=asked)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        # a name of theirs that was made to point here: page and Host agree with each other
        {"host": "evil.example:8600", "origin": "http://evil.example:8600"},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "localhost.evil.example:80"},
        {"host": "192.0.2.7:8600"},
        {"host": "[2001:db8::1]:8600"},
        {"host": "[::1"},
        {"host": "[::1]evil.example"},
        {"host": "127.0.0.1:1:2"},
        {"host": "0.0.0.0:8600"},
    ],
)
def test_foreign_pages_and_names_are_refused(client: httpx.Client, headers: dict[str, str]) -> None:
    before = len(acted(client))
    assert sent(client, PAUSE, headers) == 403
    assert len(acted(client)) == before


@pytest.mark.parametrize("path", ["/admin/status", "/metrics"])
def test_a_foreign_name_for_this_machine_learns_nothing(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 200
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        assert client.get(path, headers=headers).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9", "LOCALHOST:9", "[::1]:9", "[::1]"])
def test_every_name_of_this_machine_will_do(client: httpx.Client, host: str) -> None:
    assert sent(client, PAUSE, {"host": host, "origin": f"http://{host.lower()}"}) == 200


def test_the_token_for_administration_is_needed_and_enough(guarded: httpx.Client) -> None:
    tokens = {None: 401, "guess": 401, "secret-i": 403, "secret-a": 200}
    for token, status in tokens.items():
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        assert sent(guarded, PAUSE, headers) == status
    # behind another name, as a proxy has it, the token still says enough
    named = {
        "authorization": "Bearer secret-a",
        "host": "gpu.example",
        "origin": "https://ui.example",
    }
    assert sent(guarded, PAUSE, named) == 200
    assert len(acted(guarded, authorization="Bearer secret-a")) == 2


def test_who_may_not_act_learns_nothing_of_tenants(guarded: httpx.Client) -> None:
    asked = {"action": "drain", "tenant": "nobody"}
    assert sent(guarded, asked, {"authorization": "Bearer secret-i"}) == 403
    assert sent(guarded, asked) == 401


def test_it_is_described(client: httpx.Client) -> None:
    operation = client.get("/openapi.json").json()["paths"][PATH]["post"]
    assert {"200", "400", "401", "403", "404", "409", "415"} <= set(operation["responses"])
    assert list(operation["requestBody"]["content"]) == ["application/json"]
