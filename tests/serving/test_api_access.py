"""Access to the API: tokens, addresses to listen on, foreign pages, operators' actions,
and files that may be open."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from support.api_server import image_body, running_server

from migrator.core.errors import HttpError, InputError
from migrator.serving.http.access import Tokens, digest, require_safe
from migrator.serving.http.server import ApiServer

PATH = "/admin/actions"
PAUSE = {"action": "pause", "tenant": None}


@pytest.fixture(scope="module")
def guarded() -> Iterator[httpx.Client]:
    tokens = {"images": "secret-i", "texts": "secret-t"}
    with (
        running_server(tokens=tokens, admin="secret-a") as (url, _),
        httpx.Client(base_url=url) as client,
    ):
        yield client


def acted(client: httpx.Client, **headers: str) -> list[Any]:
    actions: list[Any] = client.get("/admin/status", headers=headers).json()["acted"]
    return actions


def sent(client: httpx.Client, body: object, headers: Mapping[str, str] | None = None) -> int:
    answer = client.post(PATH, json=body, headers=dict(headers or {}))
    assert set(answer.json()) == ({"outcome", "words"} if answer.is_success else {"error"})
    return answer.status_code


def test_an_action_is_done_and_reported(client: httpx.Client) -> None:
    answer = client.post(PATH, json=PAUSE)
    assert answer.json() == {"outcome": "done", "words": "pause in words"}
    assert client.post(PATH, json={"action": "drain", "tenant": "images"}).status_code == 200
    assert client.post(PATH, json={"action": "replan"}).status_code == 200
    assert acted(client)[-3:] == [
        ["pause", None, "api"],
        ["drain", "images", "api"],
        ["replan", None, "api"],
    ]


def test_the_headers_name_the_origin_of_an_action(client: httpx.Client) -> None:
    own = str(client.base_url).rstrip("/")
    page = {"origin": own, "sec-fetch-site": "same-origin"}
    assert sent(client, PAUSE, page) == 200
    assert sent(client, PAUSE, {"user-agent": "migrator-cli/1"}) == 200
    assert [action[2] for action in acted(client)[-2:]] == ["page", "cli"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"action": "explode"}, 400, "pause, resume, replan, roll-back, drain, undrain"),
        ({"action": "pause", "tenant": "images"}, 400, "leave it out"),
        ({"action": "drain"}, 400, "images, texts"),
        ({"action": "drain", "tenant": "missing"}, 404, "images, texts"),
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
    labelled = {**image_body(), "label": 1}
    given = {"authorization": "Bearer secret-i", "origin": "http://example.com"}
    stored = guarded.post("/v2/models/images/feedback", json=labelled, headers=given)
    assert stored.status_code == 200


def test_who_may_not_act_learns_nothing_of_tenants(guarded: httpx.Client) -> None:
    asked = {"action": "drain", "tenant": "missing"}
    assert sent(guarded, asked, {"authorization": "Bearer secret-i"}) == 403
    assert sent(guarded, asked) == 401


@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    [
        # none, a wrong token, the tenant, the other tenant, administration
        ("GET", "/v2", (200, 200, 200, 200, 200)),
        ("GET", "/v2/health/live", (200, 200, 200, 200, 200)),
        ("GET", "/v2/health/ready", (200, 200, 200, 200, 200)),
        ("GET", "/openapi.json", (200, 200, 200, 200, 200)),
        ("GET", "/v2/models/images", (401, 401, 200, 403, 200)),
        ("GET", "/v2/models/images/ready", (401, 401, 200, 403, 200)),
        ("POST", "/v2/models/images/infer", (401, 401, 400, 403, 400)),
        ("POST", "/v2/models/images/versions/7/infer", (401, 401, 400, 403, 400)),
        ("POST", "/v2/models/images/feedback", (401, 401, 400, 403, 400)),
        ("POST", "/v2/models/images/samples", (401, 401, 400, 403, 400)),
        ("GET", "/v2/models/missing", (401, 401, 403, 403, 404)),
        ("POST", "/v2/repository/index", (401, 401, 200, 200, 200)),
        ("GET", "/metrics", (401, 401, 403, 403, 200)),
        ("GET", "/admin/status", (401, 401, 403, 403, 200)),
    ],
)
def test_a_token_opens_what_it_is_for(
    guarded: httpx.Client, method: str, path: str, statuses: tuple[int, ...]
) -> None:
    tokens = (None, "guess", "secret-i", "secret-t", "secret-a")
    for token, status in zip(tokens, statuses, strict=True):
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        answer = guarded.request(method, path, headers=headers)
        assert answer.status_code == status, token
        assert (status == 401) == (answer.headers.get("www-authenticate") == "Bearer")


def test_a_tenant_sees_only_its_own_model(guarded: httpx.Client) -> None:
    for token, names in (("secret-t", ["texts"]), ("secret-a", ["images", "texts"])):
        headers = {"authorization": f"bearer {token}"}
        listed = guarded.post("/v2/repository/index", headers=headers).json()
        assert [model["name"] for model in listed] == names


@pytest.mark.parametrize(
    "sent", [None, "", "Bearer", "Bearer ", "secret", "Basic secret", "Bearer Ü"]
)
def test_only_a_bearer_token_is_one(sent: str | None) -> None:
    headers = [] if sent is None else [(b"authorization", sent.encode("latin-1"))]
    request = Request({"type": "http", "headers": headers})
    with pytest.raises(HttpError, match="Authorization: Bearer"):
        Tokens({"t": digest("secret")}).holder(request)


def test_a_token_in_the_clear_is_refused() -> None:
    with pytest.raises(InputError, match="token of t: not a SHA-256"):
        Tokens({"t": "secret"})
    with pytest.raises(InputError, match="token of administration"):
        Tokens(admin="A" * 64)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_without_tokens_only_this_machine_is_listened_to(host: str) -> None:
    require_safe(host, Tokens())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org", ""])
def test_listening_to_others_needs_tokens(host: str) -> None:
    with pytest.raises(InputError, match="set tokens"):
        ApiServer(Starlette(), tokens=Tokens(), host=host, port=0)
    require_safe(host, Tokens(admin=digest("a")))


def test_a_port_that_is_taken_is_named(guarded: httpx.Client) -> None:
    with pytest.raises(InputError, match="use another port"):
        ApiServer(Starlette(), tokens=Tokens(), port=guarded.base_url.port or 0)


LIMITED = """
import logging, resource, sys
from migrator.core.errors import InputError
from migrator.serving.http.requests import ClientLimits
from migrator.serving.http.server import affordable
logging.basicConfig(format="%(message)s", stream=sys.stdout)
for limits in sys.argv[1:]:
    soft, hard = map(int, limits.split(":"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        connections = affordable(ClientLimits(connections=1000)).connections
    except InputError as error:
        connections = f"error: {error}"
    print(connections, *resource.getrlimit(resource.RLIMIT_NOFILE), sep="|")
"""


def test_too_few_open_files_for_the_connections_are_noticed_at_the_start() -> None:
    limits = ("256:4096", "2000:4096", "256:512", "64:100")  # a limit can only be lowered
    command = [sys.executable, "-c", LIMITED, *limits]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    enough, more, warned, fewer, refused = done.stdout.splitlines()
    assert (enough, more) == ("1000|1128|4096", "1000|2000|4096")
    assert "384 connections are served at a time instead of 1000" in warned
    assert fewer == "384|512|512"
    assert "open files: the limit of this process is 100, too low to serve" in refused
