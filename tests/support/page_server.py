"""The page of records: from `migrator dashboard` as a process, or from a thread."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from migrator.dashboard.routes import Source, serve_page


@contextmanager
def shown(*records: Path | str, port: int = 0) -> Iterator[str]:
    """The page of these records and its address; Ctrl-C ends it without a word of complaint."""
    command = [sys.executable, "-m", "migrator", "dashboard", *map(str, records)]
    with subprocess.Popen(
        [*command, "--port", str(port), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        try:
            yield json.loads(line)["url"]
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, ""), (process.returncode, errors)


@contextmanager
def served(path: Path, port: int = 0) -> Iterator[str]:
    """The address of the page of these records, served by a thread."""
    loop, stop, url = asyncio.new_event_loop(), asyncio.Event(), Future[str]()

    def run() -> None:
        try:
            page = serve_page([Source(path.stem, path)], port, url.set_result, stop)
            loop.run_until_complete(page)
        except BaseException as error:
            if not url.done():
                url.set_exception(error)
            raise
        finally:
            loop.close()

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield url.result(30)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
    assert not thread.is_alive()
