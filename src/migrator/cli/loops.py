"""Event loops of the verbs that run for a while, and how signals end them. Imported when needed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from migrator.core.load_outcome import LoadOutcome
from migrator.load.run import LoadSettings, Standing, load
from migrator.workload.live import LiveScenario


def loop() -> asyncio.AbstractEventLoop:
    """The fast one where it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def loaded(
    live: LiveScenario, settings: LoadSettings, show: Callable[[Standing], None]
) -> LoadOutcome:
    """A load to its end, or to Ctrl-C; `show` hears how it stands."""
    with asyncio.Runner(loop_factory=loop) as runner:
        begun = False

        def watch(now: Standing) -> None:
            nonlocal begun
            begun = True
            show(now)

        async def sending() -> LoadOutcome:
            stop = asyncio.Event()
            with _interruptible(stop, lambda: begun):
                return await load(live, settings, watch, stop)

        try:
            return runner.run(sending())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


@contextmanager
def _interruptible(stop: asyncio.Event, begun: Callable[[], bool]) -> Iterator[None]:
    """Ctrl-C ends the sending, and what was measured is told; before it, or twice, it ends all."""
    running, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        if stop.is_set() or not begun():
            task.cancel()
        stop.set()

    before = signal.getsignal(signal.SIGINT)
    running.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        running.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
