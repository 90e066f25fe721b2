"""Who may ask for what, and where the API may listen."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from starlette.applications import Starlette
from support.api_server import running_server

from migrator.core.errors import InputError
from migrator.serve.exceptions import NoTokenError
from migrator.serve.http.authentication import Tokens, digest, require_safe
from migrator.serve.http.server import ApiServer


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    tokens = {"images": "secret-i", "texts": "secret-t"}
    with (
        running_server(tokens=tokens, admin="secret-a") as (url, _),
        httpx.Client(base_url=url) as it,
    ):
        yield it


@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    [
        # nobody, a wrong token, the tenant, the other tenant, administration
        ("GET", "/v2", (200, 200, 200, 200, 200)),
        ("GET", "/v2/health/live", (200, 200, 200, 200, 200)),
        ("GET", "/v2/health/ready", (200, 200, 200, 200, 200)),
        ("GET", "/docs", (200, 200, 200, 200, 200)),
        ("GET", "/v2/models/images", (401, 401, 200, 403, 200)),
        ("GET", "/v2/models/images/ready", (401, 401, 200, 403, 200)),
        ("POST", "/v2/models/images/infer", (401, 401, 400, 403, 400)),
        ("POST", "/v2/models/images/versions/7/infer", (401, 401, 400, 403, 400)),
        ("POST", "/v2/models/images/feedback", (401, 401, 400, 403, 400)),
        ("GET", "/v2/models/nobody", (401, 401, 403, 403, 404)),
        ("POST", "/v2/repository/index", (401, 401, 200, 200, 200)),
        ("GET", "/metrics", (401, 401, 403, 403, 200)),
        ("GET", "/admin/status", (401, 401, 403, 403, 200)),
    ],
)
def test_a_token_opens_what_it_is_for(
    client: httpx.Client, method: str, path: str, statuses: tuple[int, ...]
) -> None:
    tokens = (None, "guess", "secret-i", "secret-t", "secret-a")
    for token, status in zip(tokens, statuses, strict=True):
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        answer = client.request(method, path, headers=headers)
        assert answer.status_code == status, token
        assert (status == 401) == (answer.headers.get("www-authenticate") == "Bearer")


def test_a_tenant_sees_only_its_own_model(client: httpx.Client) -> None:
    for token, names in (("secret-t", ["texts"]), ("secret-a", ["images", "texts"])):
        headers = {"authorization": f"bearer {token}"}
        listed = client.post("/v2/repository/index", headers=headers).json()
        assert [each["name"] for each in listed] == names


@pytest.mark.parametrize(
    "sent", [None, "", "Bearer", "Bearer ", "secret", "Basic secret", "Bearer Ü"]
)
def test_only_a_bearer_token_is_one(sent: str | None) -> None:
    with pytest.raises(NoTokenError, match="Authorization: Bearer"):
        Tokens({"t": digest("secret")}).holder(sent)


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


def test_a_port_that_is_taken_is_named(client: httpx.Client) -> None:
    with pytest.raises(InputError, match="use another port"):
        ApiServer(Starlette(), tokens=Tokens(), port=client.base_url.port or 0)
