"""The event loop of `gateway`, and where its map comes from. Imported when needed."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import ExitStack
from typing import Any

from migrator.cli.daemon_calls import token_of
from migrator.cli.loops import loop
from migrator.cluster.fleet.gateway import Gateway, followed
from migrator.cluster.fleet.map_source import Asked, FromFile, FromGateway, FromHead, MapSource
from migrator.cluster.fleet.ray_connection import connected, head_of
from migrator.core.errors import InputError
from migrator.live.shared_files import read_bytes
from migrator.serve.limits import Limits
from migrator.serve.server import ApiServer, affordable
from migrator.serve.tokens import Tokens


def gateway_served(
    cluster: str | None,
    map_from: str | None,
    scenario: str | None,
    host: str,
    port: int,
    limits: Limits,
) -> None:
    """Until Ctrl-C or a termination."""
    with ExitStack() as stack:
        if cluster is not None:
            asked: Asked = _head(stack.enter_context(connected(cluster)), scenario)
        else:
            asked = _without_ray(map_from or "")
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(_serve(MapSource(asked), host, port, limits))


def _head(ray: Any, scenario: str | None) -> FromHead:
    return FromHead(ray, lambda: head_of(ray, scenario))


def _without_ray(map_from: str) -> Asked:
    if map_from.startswith(("http://", "https://")):
        return FromGateway(map_from, token_of(None))
    return FromFile(map_from, read_bytes)


async def _serve(source: MapSource, host: str, port: int, limits: Limits) -> None:
    stop, running = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        running.add_signal_handler(number, stop.set)
    following = await followed(source)
    if not source.current.order > (0, 0):
        following.cancel()
        why = f" ({source.trouble})" if source.trouble else ""
        raise InputError(
            f"--cluster, --map: there is no map yet{why}; start the cluster, then a gateway"
        )
    limits = affordable(limits, files_each=2)  # the client's connection and the daemon's
    app = Gateway(source, limits)
    tokens = Tokens(admin=source.current.admin)
    server = ApiServer(app, tokens=tokens, host=host, port=port, limits=limits)
    try:
        await server.start()
        print(f"serving at {server.url}", file=sys.stderr, flush=True)
        await stop.wait()
        await server.stop()
    finally:
        following.cancel()
        app.forwarder.close()
