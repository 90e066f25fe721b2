"""Seconds without answers after `kill -9` and after a clean stop: python -m benchmarks.restart

Serves examples/live.yaml on the emulated driver under the load of `migrator load`, labels included.
The daemon is ended at several moments of a window, and once while it retrains, and started again at
once. Clients ask for every tenant all the time; the gap is the time from a tenant's last answer
before the end to its first one afterwards, the longest of all tenants. Kills and clean stops
alternate, so that both see the same machine. [--times 3] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from benchmarks.live_daemon import MIGRATOR, environment
from benchmarks.machine import describe_machine

SCENARIO = Path(__file__).parent.parent / "examples" / "live.yaml"
TENANTS, WINDOW_S = ("photos", "cameras"), 20.0
LIMIT_S = 180.0
PIXELS = [0] * (3 * 16 * 16)
BODY = {"inputs": [{"name": "input", "datatype": "UINT8", "shape": [1, 3, 16, 16], "data": PIXELS}]}
WAYS = {"kill": signal.SIGKILL, "clean": signal.SIGTERM}


class Daemon:
    """A daemon process, and when it said what."""

    def __init__(self, state: Path, port: int) -> None:
        command = [*MIGRATOR, "serve", str(SCENARIO), "--port", str(port), "--state", str(state)]
        self.began_s = time.monotonic()
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=environment()
        )
        self.said: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read, args=(state / "serve.log",), daemon=True)
        self._reader.start()

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(LIMIT_S)

    def serves(self) -> bool:
        return any(words.startswith("serving at") for _, words in self.said)

    def stages(self) -> dict[str, float]:
        """Seconds from its start to each step that it reports."""
        steps = ("importing", "creating", "serving at")
        return {
            words.split(" http")[0]: round(at - self.began_s, 2)
            for at, words in self.said
            if words.startswith(steps)
        }

    def _read(self, log: Path) -> None:
        assert self.process.stderr is not None
        with log.open("a", encoding="utf-8") as written:
            for line in self.process.stderr:
                self.said.append((time.monotonic(), line.strip()))
                written.write(line)


class Client:
    """Asks for one tenant all the time; knows when it was answered."""

    def __init__(self, url: str, tenant: str) -> None:
        self._url = f"{url}/v2/models/{tenant}/infer"
        self.answered_s: list[float] = []
        threading.Thread(target=self._ask, daemon=True).start()

    def gap_s(self, ended_s: float) -> float | None:
        """From the last answer before that moment to the first one after it; None: not yet."""
        seen = list(self.answered_s)
        before = max(at for at in seen if at <= ended_s)
        return next((at - before for at in seen if at > ended_s + 0.2), None)

    def _ask(self) -> None:
        with httpx.Client(timeout=5) as client:
            while True:
                time.sleep(0.05)
                try:
                    answered = client.post(self._url, json=BODY).status_code == httpx.codes.OK
                except httpx.HTTPError:
                    continue
                if answered:
                    self.answered_s.append(time.monotonic())


def until(condition: Callable[[], Any]) -> Any:
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        value = condition()
        if value is not None and value is not False:
            return value
        time.sleep(0.02)
    raise SystemExit(f"not within {LIMIT_S:g} s")


def status(url: str) -> Any:
    try:
        return httpx.get(f"{url}/admin/status", timeout=5).json()
    except (httpx.HTTPError, ValueError):
        return None


def moments(url: str) -> dict[str, Callable[[], bool]]:
    """When to end the daemon, by name: conditions on its status."""

    def between(low: float, high: float) -> Callable[[], bool]:
        def reached() -> bool:
            now = status(url)
            return now is not None and low <= now["slot"] < high

        return reached

    def retrains() -> bool:
        now = status(url)
        return now is not None and any(unit["state"] == "training" for unit in now["units"])

    return {"edge": between(0, 2), "middle": between(9, 12), "retraining": retrains}


@contextmanager
def load(url: str) -> Iterator[None]:
    command = [*MIGRATOR, "load", str(SCENARIO), "--url", url, "--windows", "1000", "--now"]
    process = subprocess.Popen(
        [*command, "--patience-s", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run(state: Path, times: int) -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, rows = f"http://127.0.0.1:{port}", []
    daemon = Daemon(state, port)
    try:
        clients = [Client(url, tenant) for tenant in TENANTS]
        until(lambda: all(client.answered_s for client in clients))
        with load(url):
            for number in range(times):
                for moment, reached in moments(url).items():
                    for way in WAYS if number % 2 else reversed(WAYS):
                        # a window under load first: labels to retrain on, a plan that is followed
                        time.sleep(WINDOW_S)
                        until(reached)
                        ended_s = time.monotonic()
                        daemon.end(WAYS[way])
                        gone_s = time.monotonic() - ended_s
                        daemon = Daemon(state, port)
                        gap_s = max(until(partial(client.gap_s, ended_s)) for client in clients)
                        until(daemon.serves)
                        rows.append(
                            {
                                "way": way,
                                "moment": moment,
                                "without_answers_s": round(gap_s, 2),
                                "ending_s": round(gone_s, 2),
                                "load_average": round(os.getloadavg()[0], 1),
                                "stages_s": daemon.stages(),
                            }
                        )
                        print(json.dumps(rows[-1]), flush=True)
    finally:
        daemon.end(signal.SIGTERM)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = run(Path(folder), asked.times)
    result: dict[str, Any] = {"machine": describe_machine(), "rows": rows}
    for way in WAYS:
        gaps = [row["without_answers_s"] for row in rows if row["way"] == way]
        result[way] = {"median_s": statistics.median(gaps), "longest_s": max(gaps)}
        print(f"{way}: median {result[way]['median_s']:.1f} s, longest {max(gaps):.1f} s")
    if asked.out is not None:
        asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
