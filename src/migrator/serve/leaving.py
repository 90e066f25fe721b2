"""A client that leaves while its request waits: the request leaves the line with it.

The connection finds what to cancel in the request's scope, so that no request needs a watcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from starlette.requests import ClientDisconnect, Request

KEY = "migrator.waiting"


@contextmanager
def leaving(request: Request) -> Iterator[None]:
    """Inside, the client's leaving is raised as ClientDisconnect."""
    task = asyncio.current_task()
    request.scope[KEY] = task
    try:
        yield
    except asyncio.CancelledError:
        if KEY in request.scope or task is None:
            raise
        task.uncancel()
        raise ClientDisconnect from None
    finally:
        request.scope.pop(KEY, None)


def client_left(scope: object) -> None:
    """Called by the connection at its end."""
    task = cast("dict[str, Any]", scope).pop(KEY, None)
    if task is not None:
        task.cancel()
