"""Waiting for conditions, however busy the machine is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 400.0
"""For a machine that does much else; a test that passes never waits for it."""


def until(
    happened: Callable[[], Any],
    words: str | Callable[[], object] = "it happens",
    *,
    look_s: float = 0.15,
    limit_s: float = LIMIT_S,
) -> Any:
    """What it returns once that is something; AssertionError with the words if it never is."""
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        value = happened()
        if value:
            return value
        time.sleep(look_s)
    raise AssertionError(f"never: {words if isinstance(words, str) else words()}")


async def until_async(happened: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Wait in an event loop; TimeoutError if it never happens."""
    async with asyncio.timeout(limit_s):
        while not happened():
            await asyncio.sleep(0.01)
