"""A daemon under load and kills for 20 minutes: python -m benchmarks.soak [--out FOLDER]

`migrator serve` on the emulated driver with three small tenants and short windows. Clients send
requests and their labels all the time; the looks of every class change every two windows, so that
every retraining can gain. Processes of every kind are killed in turn, the daemon itself only at
first; then its store of recent inputs is filled to its limit, as hours of requests would do. After
the first quarter its memory is watched. At the end it is checked that

- every tenant was retrained in the last five windows,
- every acknowledged label is kept, or was learned and then trimmed by the documented rule,
- the daemon's memory stayed within 10% after the first quarter,

and every failed request is counted, with those that no kill explains apart. Exit code 1: a check
failed. A few minutes are a smoke run with the same checks on smaller numbers.
"""

from __future__ import annotations

import argparse
import bisect
import http.client
import itertools
import json
import os
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from benchmarks.live_daemon import MIGRATOR, environment, write_scenario
from benchmarks.machine import describe_machine
from migrator.learn.registry import benchmark
from migrator.live.labels import LabelLimits
from migrator.live.versions import Versions
from migrator.records.rows import RunRecords
from migrator.records.store import read_records, read_runs
from migrator.serving.http.requests import ClientLimits

TENANTS = ("photos", "cameras", "scans")
BENCHMARK = "nc-synthetic"
WINDOW_S, RATE, SIDE, ROWS = 10, 10.0, 16, 32
"""Seconds of a window; requests a second of every tenant; pixels of a picture; rows of a request
that fills the store of recent inputs."""
PLANS, KILLS, LABELS, MINUTES = 100, 50, 20_000, 20.0
"""What a run of so many minutes must reach."""
KINDS = ("worker", "retrainer", "fork server", "estimator", "policy process")
FIND_S, START_S, FIRST_PLAN_S, END_S = 15.0, 180.0, 1800.0, 60.0
EXCUSED_S = {"worker": 3.0, "daemon": 3.0}
"""Requests that fail so soon after such a kill, or before a killed daemon serves again, are due to
it; a kill of any other process must cost none."""
MEMORY_PARTS, MEMORY_GROWTH = 6, 0.10
FIRST_WORDS = "the model it begins with"


class Forgetful:
    """Scores are distances to the mean pictures of what each label meant lately; numpy only."""

    modality = "images"
    learning_rate = 1.0

    def __init__(self, classes: int) -> None:
        self.means = np.full((classes, 3 * SIDE * SIDE), 1e3, np.float32)

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        """Nothing learned yet."""
        del seed
        return cls(classes)

    def to(self, device: str) -> None:
        """Only the host is needed."""
        assert device == "cpu"

    def example(self, batch: int) -> NDArray[Any]:
        """Inputs of the right shape."""
        return np.zeros((batch, 3, SIDE, SIDE), np.uint8)

    def infer(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Negative distances."""
        flat = inputs.reshape(len(inputs), 1, -1).astype(np.float32)
        scores: NDArray[np.float32] = -((flat - self.means[None]) ** 2).mean(axis=2)
        return scores

    def train_step(self, inputs: NDArray[Any], labels: NDArray[np.int64], lr: float) -> float:
        """Move the means of these labels; slow enough to be killed."""
        del lr
        time.sleep(0.02)
        for label in np.unique(labels):
            mean = inputs[labels == label].reshape(-1, 3 * SIDE * SIDE).mean(axis=0)
            self.means[label] += 0.7 * (mean - self.means[label])
        return 0.0

    def save(self, path: Path, *, training: bool = False) -> None:
        """To a file."""
        del training
        save_file({"means": self.means}, path)

    def load(self, path: Path) -> None:
        """From a file."""
        self.means = load_file(path)["means"]


def scenario(port: int) -> Mapping[str, Any]:
    """Three tenants with the same model."""
    learning = {"benchmark": BENCHMARK, "epochs": 3, "replay": 1, "held_out": 0.25}
    tenants = [
        {
            "name": name,
            "model": "soak:Forgetful",
            "profile": "profiles.json",
            "slo_ms": 2000,
            "batch": 32,
            "arrivals": {"generator": "azure", "mean_rps": RATE},
            "live": learning,
        }
        for name in TENANTS
    ]
    run = {"window_s": WINDOW_S, "slot_s": 1, "windows": 3, "policy": "migrator"}
    kept = {"version": 1, "gpu": "A100-40GB", "forecaster": "last-mean", "seed": 0}
    return {**kept, **run, "live": {"port": port}, "tenants": tenants}


PROFILE = {
    "model": "soak:Forgetful",
    "board": "A100-40GB",
    "latency_ms": {"1": {"14": 10, "98": 4}, "32": {"14": 20, "98": 8}},
    "training_ratio": 15.0,
    "interference": 0.1,
    "contention": 1.0,
    "overhead": {"create_s": 0.1, "start_s": 1.0, "load_s": 0.1},
    "provenance": "made up for the emulated driver",
}


@dataclass(frozen=True)
class Label:
    """One that was acknowledged."""

    tenant: str
    request: str
    label: int
    at_s: float


@dataclass(frozen=True)
class Failure:
    """A request that was not answered with 200."""

    at_s: float
    tenant: str
    what: str


@dataclass
class Seen:
    """What happened so far, from all threads."""

    labels: list[Label] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    kills: list[tuple[float, str]] = field(default_factory=list)
    down: list[tuple[float, float]] = field(default_factory=list)
    """From the kill of the daemon until it served again."""
    memory: list[tuple[float, float]] = field(default_factory=list)
    """Moment and MiB, of the daemon that lives at the end."""
    requests: int = 0


class Client(threading.Thread):
    """Requests of one tenant at a steady rate, each with its label."""

    def __init__(self, tenant: str, port: int, seen: Seen, stop: threading.Event) -> None:
        super().__init__(name=tenant, daemon=True)
        self.tenant, self._port, self._seen, self._stopped = tenant, port, seen, stop
        self._classes = benchmark(BENCHMARK).classes
        self._noise = np.random.default_rng(time.time_ns())
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        """Until told to stop."""
        began_s, life = time.monotonic(), f"{self.tenant}-{time.time_ns()}"
        for number in itertools.count():
            due_s = began_s + number / RATE
            if self._stopped.wait(max(0.0, due_s - time.monotonic())):
                return
            began_s = max(began_s, time.monotonic() - number / RATE - 1.0)  # no bursts after a gap
            self._ask(f"{life}-{number}", number % self._classes)

    def fill(self, size: int) -> None:
        """Requests of many rows, until so many bytes were answered."""
        for number in range(-(-size // (ROWS * 3 * SIDE * SIDE))):
            if self._stopped.is_set():
                return
            rows = self._noise.integers(0, 256, (ROWS, 3, SIDE, SIDE), np.uint8)
            self._infer(f"{self.tenant}-fill-{number}", rows)

    def _ask(self, request: str, label: int) -> None:
        self._seen.requests += 1
        labelled = {"id": request, "label": label}
        if self._infer(request, self._picture(label)) and self._sent("feedback", labelled):
            self._seen.labels.append(Label(self.tenant, request, label, time.time()))

    def _picture(self, label: int) -> NDArray[np.uint8]:
        """The pattern that this class has at the moment, under noise."""
        phase = int(time.time() / (2 * WINDOW_S))
        pattern = np.random.default_rng([phase, label]).integers(0, 256, (1, 3, SIDE, SIDE))
        noise = self._noise.integers(-60, 60, pattern.shape)
        picture: NDArray[np.uint8] = np.clip(pattern + noise, 0, 255).astype(np.uint8)
        return picture

    def _infer(self, request: str, rows: NDArray[np.uint8]) -> bool:
        kind = {"name": "input", "datatype": "UINT8", "shape": list(rows.shape)}
        tensor = {**kind, "parameters": {"binary_data_size": rows.nbytes}}
        return self._sent("infer", {"id": request, "inputs": [tensor]}, rows.tobytes())

    def _sent(self, verb: str, body: Mapping[str, Any], binary: bytes = b"") -> bool:
        path, text = f"/v2/models/{self.tenant}/{verb}", json.dumps(body).encode()
        headers = {"content-type": "application/octet-stream" if binary else "application/json"}
        if binary:
            headers["inference-header-content-length"] = str(len(text))
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
            self._connection.request("POST", path, text + binary, headers)
            reply = self._connection.getresponse()
            said = reply.read()
        except (OSError, http.client.HTTPException) as error:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            self._failed(f"{verb}: {type(error).__name__}")
            return False
        if reply.status != 200:
            self._failed(f"{verb}: {reply.status} {said.decode(errors='replace')[:160]}")
        return reply.status == 200

    def _failed(self, what: str) -> None:
        self._seen.failures.append(Failure(time.time(), self.tenant, what))


class Daemon:
    """The daemon, started again after a kill, and its processes."""

    def __init__(self, folder: Path, port: int, seen: Seen) -> None:
        self.folder, self.port, self._seen = folder, port, seen
        (folder / "profiles.json").write_text(json.dumps({"version": 2, "profiles": [PROFILE]}))
        self._scenario = write_scenario(folder / "soak.yaml", scenario(port))
        self.home = folder / "state" / "live" / "soak"
        self._log = (folder / "serve.log").open("ab")
        self.start()

    def start(self) -> None:
        """Until it serves."""
        command = [*MIGRATOR, "serve", str(self._scenario), "--state", str(self.folder / "state")]
        variables = {**environment(), "MIGRATOR_EMULATED_PACE": "0.1"}
        self.process = subprocess.Popen(command, stderr=self._log, env=variables)
        until_s = time.monotonic() + START_S
        while self.process.poll() is None and time.monotonic() < until_s:
            with suppress(OSError, http.client.HTTPException, ValueError):
                if self.status()["pid"] == self.process.pid:
                    return
            time.sleep(0.1)
        raise SystemExit(f"it does not serve: {(self.folder / 'serve.log').read_text()[-2000:]}")

    def wait_for_plan(self) -> None:
        """Until the planner is compiled, which takes a minute on a new machine."""
        until_s = time.monotonic() + FIRST_PLAN_S
        while not read_records(self.home / "records.db").plans:
            if time.monotonic() > until_s:
                raise SystemExit(f"no plan within {FIRST_PLAN_S:g} s; see {self.folder}")
            time.sleep(0.5)

    def status(self) -> Mapping[str, Any]:
        """As it says itself; once it answers, every tenant is served."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with closing(connection):
            connection.request("GET", "/v2/health/ready")
            ready = connection.getresponse()
            ready.read()
            connection.request("GET", "/admin/status")
            parsed_json: Mapping[str, Any] = json.loads(connection.getresponse().read())
        if ready.status != 200:
            raise ValueError("not ready")
        return parsed_json

    def stop(self) -> None:
        """Drain."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(END_S)
        self._log.close()

    def kill(self) -> None:
        """With SIGKILL, then start another."""
        killed_s = time.time()
        self._seen.kills.append((killed_s, "daemon"))
        self.process.kill()
        self.process.wait()
        self.start()
        self._seen.down.append((killed_s, time.time()))
        self._seen.memory.clear()  # another process

    def kill_one(self, kind: str) -> bool:
        """A process of that kind, waited for a while; False: there was none."""
        until_s = time.monotonic() + FIND_S
        while time.monotonic() < until_s:
            for pid in self._processes(kind):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self._seen.kills.append((time.time(), kind))
                    return True
            time.sleep(0.01)
        return False

    def _processes(self, kind: str) -> Iterator[int]:
        names = {"worker": "migrator ", "retrainer": "retrain ", "estimator": "estimate "}
        for pid in _children(self.process.pid):
            command = _words(pid, "cmdline")
            forks = "migrator.serving.workers.forkserver_process" in command
            if {"fork server": forks, "policy process": "spawn_main" in command}.get(kind):
                yield pid
            if forks and kind in names:
                for child in _children(pid):
                    if _words(child, "comm").startswith(names[kind]):
                        yield child

    def memory_mib(self) -> float:
        """Resident memory of the process itself."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
        return 0.0


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _words(pid: int, file: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace").replace("\0", " ")
    return ""


def run(folder: Path, minutes: float) -> Mapping[str, Any]:
    """All of it; what came of it."""
    seen, stop = Seen(), threading.Event()
    daemon = Daemon(folder, _free_port(), seen)
    daemon.wait_for_plan()
    clients = [Client(name, daemon.port, seen, stop) for name in TENANTS]
    for client in clients:
        client.start()
    began_s, ends_s = time.monotonic(), time.monotonic() + minutes * 60
    watching = threading.Thread(target=_watch, args=(daemon, seen, stop), daemon=True)
    watching.start()
    every_s = minutes * 60 / (1.3 * KILLS * minutes / MINUTES + 5)
    kinds = itertools.cycle(KINDS)
    daemon_due_s = began_s + every_s
    filling: list[threading.Thread] = []
    for number in itertools.count(1):
        if time.monotonic() > ends_s - 2 * WINDOW_S:
            break
        if daemon_due_s < time.monotonic() < began_s + minutes * 60 / 8:
            daemon.kill()
            daemon_due_s = time.monotonic() + minutes * 60 / 40
        elif not filling and time.monotonic() >= began_s + minutes * 60 / 8:
            size = round(ClientLimits().recent_bytes * min(1.0, minutes / MINUTES))
            fillers = [Client(name, daemon.port, seen, stop) for name in TENANTS]
            filling = [
                threading.Thread(target=filler.fill, args=(size,), daemon=True)
                for filler in fillers
            ]
            for filler in filling:
                filler.start()
        else:
            daemon.kill_one(next(kinds))
        time.sleep(max(0.0, began_s + number * every_s - time.monotonic()))
        _say(seen, ends_s)
    time.sleep(max(0.0, ends_s - time.monotonic()))
    stop.set()
    for thread in (*clients, *filling, watching):
        thread.join(END_S)
    last_window = int(daemon.status()["window"])
    daemon.stop()
    settled_s = time.time() - (time.monotonic() - began_s) + minutes * 60 / 4
    return checked(daemon.home, seen, minutes, last_window, settled_s)


def _watch(daemon: Daemon, seen: Seen, stop: threading.Event) -> None:
    while not stop.wait(1.0):
        mib = daemon.memory_mib()
        if mib:
            seen.memory.append((time.time(), mib))


def _say(seen: Seen, ends_s: float) -> None:
    left_s = max(0.0, ends_s - time.monotonic())
    print(
        f"{left_s:6.0f} s left: {len(seen.labels)} labels, {len(seen.kills)} kills, "
        f"{len(seen.failures)} failed requests",
        flush=True,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def checked(
    home: Path, seen: Seen, minutes: float, last_window: int, settled_s: float
) -> Mapping[str, Any]:
    """Figures and checks."""
    runs = [
        read_records(home / "records.db", read_run.run)
        for read_run in read_runs(home / "records.db")
    ]
    retrained = {name: _retrained(runs, name, last_window - 5) for name in TENANTS}
    missing = {name: _missing(home, runs, seen, name) for name in TENANTS}
    memory = _memory_parts(seen, settled_s)
    growth = (max(memory) - min(memory)) / memory[0] if memory else 0.0
    plans, part = sum(len(outcome.plans) for outcome in runs), minutes / MINUTES
    unexplained = [failure for failure in seen.failures if not _is_explained(failure, seen)]
    checks = {
        f"plans >= {PLANS * part:.0f}": plans >= PLANS * part,
        f"kills >= {KILLS * part:.0f}": len(seen.kills) >= int(KILLS * part),
        f"labels >= {LABELS * part:.0f}": len(seen.labels) >= LABELS * part,
        "every tenant retrained in the last five windows": all(retrained.values()),
        "0 acknowledged labels missing": not any(missing.values()),
        "memory within 10% after the first quarter": bool(memory) and growth <= MEMORY_GROWTH,
    }
    return {
        "minutes": minutes,
        "windows": last_window,
        "daemon runs": len(runs),
        "plans": plans,
        "kills": dict(Counter(kind for _, kind in seen.kills)),
        "labels acknowledged": len(seen.labels),
        "labels missing": {name: len(labels) for name, labels in missing.items()},
        "retrained in the last five windows": retrained,
        "retrainings": {name: _retrained(runs, name, -1) for name in TENANTS},
        "memory MiB": [round(sample, 1) for sample in memory],
        "memory growth": round(growth, 3),
        "requests": seen.requests,
        "failed": len(seen.failures),
        "failed without a kill": _by_reason(unexplained),
        "seconds without the daemon": [round(to - since, 1) for since, to in seen.down],
        "checks": checks,
        "machine": describe_machine(),
    }


def _by_reason(failures: list[Failure]) -> Mapping[str, int]:
    return dict(Counter(failure.what for failure in failures).most_common(20))


def _judged(run: RunRecords, tenant: str) -> Iterator[tuple[float, int]]:
    """Moment and window of every retraining that came to a result: what came before is learned."""
    done = [
        retraining
        for retraining in run.retrainings
        if retraining.tenant == tenant and retraining.phase == "done"
    ]
    for version in run.versions:
        if version.tenant == tenant and version.why != FIRST_WORDS:
            # its row is written at the end of the slot in which it ended
            near = [e for e in done if version.at_s - 0.1 <= e.at_s <= version.at_s + 5.0]
            if near:
                yield version.at_s, min(near, key=lambda e: e.at_s).window


def _retrained(runs: list[RunRecords], tenant: str, after: int) -> int:
    """Retrainings that came to a result later than that window."""
    ends = {window.window: window.ended_s for run in runs for window in run.windows}
    since_s = ends.get(after) or 0.0
    return sum(
        version.at_s > since_s
        for run in runs
        for version in run.versions
        if version.tenant == tenant and version.why != FIRST_WORDS
    )


def _missing(home: Path, runs: list[RunRecords], seen: Seen, tenant: str) -> list[Label]:
    """Acknowledged labels that are not kept although no rule lets them go."""
    with closing(sqlite3.connect(f"file:{home / 'labels.db'}?mode=ro", uri=True)) as database:
        query = "SELECT request FROM sample WHERE tenant = ?"
        kept = {request for (request,) in database.execute(query, (tenant,))}
    windows = sorted((window.began_s, window.window) for run in runs for window in run.windows)
    begins = [began_s for began_s, _ in windows]
    newest = Versions(home / "models", tenant).newest_good()
    learned = [window for run in runs for _, window in _judged(run, tenant)]
    before = max([*learned, int(newest.about.get("window", 0)) if newest else 0])
    labels = [label for label in seen.labels if label.tenant == tenant]
    after = Counter(option.label for option in labels)  # those of a class that came later
    missing = []
    for option in labels:
        after[option.label] -= 1
        if option.request not in kept:
            # at a window's edge the label may have come in the one before
            at = max(0, bisect.bisect_right(begins, option.at_s) - 1)
            window = windows[at][1]
            old = window <= windows[-1][1] - LabelLimits.windows
            if not (window < before and old and after[option.label] >= LabelLimits.per_class):
                missing.append(option)
    return missing


def _memory_parts(seen: Seen, settled_s: float) -> list[float]:
    """Medians over equal parts of the time after it settled."""
    mibs = [mib for at_s, mib in seen.memory if at_s >= settled_s]
    if len(mibs) < MEMORY_PARTS:
        return []
    return [float(statistics.median(part)) for part in np.array_split(mibs, MEMORY_PARTS)]


def _is_explained(failure: Failure, seen: Seen) -> bool:
    if any(since <= failure.at_s <= to + EXCUSED_S["daemon"] for since, to in seen.down):
        return True
    return any(at_s <= failure.at_s <= at_s + EXCUSED_S.get(kind, 0.0) for at_s, kind in seen.kills)


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--out", type=Path, help="the folder for soak.json")
    parser.add_argument("--keep", type=Path, help="keep state and log in this new folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = run(folder, arguments.minutes)
    print(json.dumps(result, indent=1))
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "soak.json").write_text(
            json.dumps(result, indent=1) + "\n", encoding="utf-8"
        )
    return 0 if all(result["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
