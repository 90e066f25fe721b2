"""The page on a port of its own, for records of finished runs: read only, this machine only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from starlette.applications import Starlette

from migrator.dashboard.routes import Dashboard
from migrator.dashboard.source import Source
from migrator.serve.limits import Limits
from migrator.serve.origin import require_own_page
from migrator.serve.server import ApiServer, affordable
from migrator.serve.tokens import Tokens


async def show(
    sources: Sequence[Source], port: int, listening: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Until told to stop; `listening` hears the address."""
    tokens = Tokens()
    page = Dashboard(sources, allow=lambda request: require_own_page(request, tokens))
    server = ApiServer(
        Starlette(routes=page.routes()),
        tokens=tokens,
        port=port,
        limits=affordable(Limits()),
        closing=page.close,
    )
    await server.start()
    try:
        listening(server.url)
        await stop.wait()
    finally:
        await server.stop()
