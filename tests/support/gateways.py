"""`migrator gateway` as a real process, and clients that keep asking through it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from support.agents import PICTURE
from support.live_daemon import pictures_body
from support.waiting import until


@contextmanager
def gateway(log: Path, *options: str) -> Iterator[str]:
    """Its address; ended whatever happens."""
    with gateway_process(log, *options) as (url, _):
        yield url


@contextmanager
def gateway_process(log: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The same with its process, for tests that end it otherwise."""
    with log.open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "migrator", "gateway", "--port", "0", *options],
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        said = until(
            lambda: (
                re.findall(r"serving at (\S+)", log.read_text(encoding="utf-8"))
                or process.poll() is not None
            ),
            lambda: log.read_text(encoding="utf-8"),
        )
        assert isinstance(said, list), log.read_text(encoding="utf-8")
        yield said[-1], process
    finally:
        process.terminate()
        process.wait()


class Asking:
    """A client that asks for every tenant in turn and counts the answers."""

    def __init__(self, url: str, tenants: Sequence[str], every_s: float = 0.03) -> None:
        self._url, self._tenants, self._every_s = url, tenants, every_s
        self.answers: Counter[tuple[str, int]] = Counter()
        self.reasons: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def refused(self) -> int:
        """Answers that were none."""
        return sum(n for (_, status), n in self.answers.items() if status != 200)

    def _ask(self) -> None:
        body = pictures_body(PICTURE[None])
        with httpx.Client(timeout=20) as client:
            while not self._stop.is_set():
                for tenant in self._tenants:
                    reply = client.post(f"{self._url}/v2/models/{tenant}/infer", json=body)
                    self.answers[tenant, reply.status_code] += 1
                    if reply.status_code != 200:
                        self.reasons.append(reply.text)
                    time.sleep(self._every_s)
