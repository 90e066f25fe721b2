"""One server with default settings for all tests of the API."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from support.api_server import running_server


@pytest.fixture(scope="session")
def client() -> Iterator[httpx.Client]:
    with running_server() as (url, _), httpx.Client(base_url=url, timeout=60) as client:
        yield client
