"""One server with default settings for all tests of the API, and workers for each module."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from support.api_server import running_server
from support.serving import SharedWorkers, shared_workers


@pytest.fixture(scope="session")
def client() -> Iterator[httpx.Client]:
    with running_server() as (url, _), httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedWorkers]:
    with shared_workers(tmp_path_factory.mktemp("shared") / "run") as shared:
        yield shared
