"""The event loop of `serve`, and the signals that end it. Imported when needed."""

from __future__ import annotations

import asyncio
import signal

from migrator.cli.loops import loop
from migrator.live.daemon import Daemon


def served(daemon: Daemon) -> None:
    """Until Ctrl-C, a termination, or its last window; then it drains."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_run(daemon))


async def _run(daemon: Daemon) -> None:
    stop, running = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        running.add_signal_handler(number, stop.set)
    await daemon.run(stop)
