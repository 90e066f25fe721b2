"""Event loops: uvloop's where it is installed, and those of processes that signals end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec


def run_until_signal(main: Callable[[asyncio.Event], Awaitable[object]]) -> None:
    """Run `main` in an event loop; its argument is set on SIGINT, SIGTERM or SIGHUP.

    SIGHUP, of a terminal that is closed, stays ignored under `nohup`.
    """
    ends = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ends.append(signal.SIGHUP)

    async def run() -> None:
        stop, running = asyncio.Event(), asyncio.get_running_loop()
        for number in ends:
            running.add_signal_handler(number, stop.set)
        await main(stop)

    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(run())


def event_loop() -> asyncio.AbstractEventLoop:
    """A new event loop: uvloop's if it is installed."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
    return loop
