"""How the processes of a daemon end with it, whatever they are at and however it ended."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread


@contextmanager
def ending_with(end: socket.socket) -> Iterator[None]:
    """Whatever this process is at: it ends as soon as the other end of the socket is closed."""
    stop, stopped = os.pipe()
    thread = Thread(target=_end_with, args=(end.fileno(), stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(stopped)
        thread.join()  # no thread may be alive in a process that forks
        os.close(stop)


def _end_with(end: int, stop: int) -> None:
    poll = select.poll()
    poll.register(end, select.POLLRDHUP)
    poll.register(stop, 0)
    if end in dict(poll.poll()):
        os._exit(1)
