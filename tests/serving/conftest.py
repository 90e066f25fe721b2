"""One server with default settings for all tests of the API, and workers for each module."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.api_server import running_server
from support.serving import SharedWorkers, shared_workers
from support.virtual_time import run_virtually


@pytest.fixture(scope="session")
def client() -> Iterator[httpx.Client]:
    with running_server() as (url, _), httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedWorkers]:
    with shared_workers(tmp_path_factory.mktemp("shared") / "run") as shared:
        yield shared


@pytest.fixture
def virtual_time() -> None:
    """Asynchronous tests that use it run on a clock that jumps."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in virtual time, or with shared workers in their event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    first = next(iter(arguments), "")
    if isinstance(arguments.get(first), SharedWorkers):
        arguments.pop(first).run(pyfuncitem.obj, arguments)
    elif "virtual_time" in pyfuncitem.fixturenames:
        run_virtually(pyfuncitem.obj(**arguments))
    else:
        return None
    return True
