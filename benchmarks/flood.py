"""A flood over HTTP at ten times what a daemon can do: python -m benchmarks.flood [--out FILE]

`migrator serve` in a process of its own, one tenant on an emulated GPU whose capacity its profile
says. As many requests as it can do and the flood, in turns, so that whatever else the machine does
falls on both: goodput must not fall in the flood, and memory must not grow from one to the next.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import uvloop

from benchmarks.api_load import Connection
from benchmarks.machine import describe_machine

SLOWER = 5
"""The objective over the time of a batch."""
START_S = 180.0
SETTLE_S = 0.5
"""After a phase: the last requests are answered or refused."""

SCENARIO = """
version: 1
gpu: A100-40GB
window_s: 600
windows: 1
policy: equal-mig
forecaster: last-mean
live: {{port: 0, connections: {connections}}}
tenants:
  - name: {name}
    model: {model}
    profile: profiles.json
    slo_ms: {slo_ms}
    batch: {batch}
    min_gpcs: 7
    arrivals: {{generator: azure, mean_rps: 5}}
    live: {{benchmark: '{benchmark}', epochs: 1}}
"""


@dataclass(frozen=True)
class Tenant:
    """What is asked, and how much of it can be done."""

    model: str
    batch: int
    batch_ms: float
    name: str = "images"
    benchmark: str = "nc-synthetic"

    @property
    def slo_s(self) -> float:
        return SLOWER * self.batch_ms / 1e3

    @property
    def capacity_rps(self) -> float:
        return self.batch / self.batch_ms * 1e3


@dataclass(frozen=True)
class Phase:
    """So many requests per second for a while, as the clients saw it."""

    name: str
    offered_rps: float
    goodput_rps: float
    """Answered within the objective."""
    late: int
    refused: int
    rss_mib: float
    """Of the daemon, afterwards."""


def profiles(tenant: Tenant) -> str:
    """The same times on every size: the capacity is known."""
    times = {"14": tenant.batch_ms, "98": tenant.batch_ms}
    profile = {
        "model": tenant.model,
        "board": "A100-40GB",
        "latency_ms": {"1": times, str(tenant.batch): times},
        "training_ratio": 1.0,
        "interference": 0.1,
        "contention": 1.0,
        "overhead": {"create_s": 0.1, "start_s": 1.0, "load_s": 0.1},
        "provenance": "made up, so that the capacity is known",
    }
    return json.dumps({"version": 2, "profiles": [profile]})


@contextmanager
def daemon(
    folder: Path, tenant: Tenant, connections: int = 8192, options: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`migrator serve` and where it listens."""
    (folder / "profiles.json").write_text(profiles(tenant), encoding="utf-8")
    scenario = folder / "flood.yaml"
    text = SCENARIO.format(
        name=tenant.name,
        model=tenant.model,
        slo_ms=1e3 * tenant.slo_s,
        batch=tenant.batch,
        benchmark=tenant.benchmark,
        connections=connections,
    )
    scenario.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "migrator", "serve", str(scenario)]
    command += ["--state", str(folder / "state"), *options]
    environment = {**os.environ, "MIGRATOR_EMULATED_PACE": "0.1"}
    log = folder / "serve.log"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, env=environment, stderr=errors, text=True)
    try:
        yield process, _url(process, log)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def _url(process: subprocess.Popen[str], log: Path) -> str:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and process.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.startswith("serving at "):
                return line.removeprefix("serving at ")
        time.sleep(0.1)
    raise SystemExit(f"it does not serve: {log.read_text(encoding='utf-8')[-2000:]}")


def request(url: str) -> bytes:
    """One image, as bytes."""
    with urlopen(f"{url}/v2/models/images") as answer:
        shape = json.load(answer)["inputs"][0]["shape"][1:]
    size = 1
    for part in shape:
        size *= part
    tensor = {
        "name": "input",
        "datatype": "UINT8",
        "shape": [1, *shape],
        "parameters": {"binary_data_size": size},
    }
    head = json.dumps({"inputs": [tensor]}).encode()
    lines = ["POST /v2/models/images/infer HTTP/1.1", "host: localhost"]
    lines += [f"content-length: {len(head) + size}"]
    lines += [f"inference-header-content-length: {len(head)}"]
    return "\r\n".join([*lines, "", ""]).encode() + head + bytes(size)


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    ok: bool
    took_s: float
    ended_s: float
    """Since the phase began."""


class Clients:
    """Open loop: requests come when they come, whatever became of those before."""

    def __init__(self, url: str) -> None:
        self._port = urlsplit(url).port or 80
        self._request = request(url)
        self._free: list[Connection] = []

    async def send(self, rate_rps: float, seconds: float) -> list[Answer]:
        """Everybody's answer."""
        begin_s = time.perf_counter() + 0.05
        asking = []
        for number in range(int(rate_rps * seconds)):
            await asyncio.sleep(max(0.0, begin_s + number / rate_rps - time.perf_counter()))
            asking.append(asyncio.create_task(self._one(begin_s)))
        return list(await asyncio.gather(*asking))

    async def _one(self, phase_s: float) -> Answer:
        connection = self._free.pop() if self._free else await self._connected()
        begin_s = time.perf_counter()
        head = await connection.ask(self._request)
        now_s = time.perf_counter()
        self._free.append(connection)
        return Answer(head.startswith(b"HTTP/1.1 200 "), now_s - begin_s, now_s - phase_s)

    async def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", self._port)
        return connection


async def measured(pid: int, url: str, tenant: Tenant, options: argparse.Namespace) -> list[Phase]:
    """All rounds; connections stay from one phase to the next."""
    clients, seconds = Clients(url), options.seconds
    await clients.send(tenant.capacity_rps, tenant.slo_s)
    phases = []
    for _ in range(options.rounds):
        for name, times in (("at capacity", 1.0), ("flood", options.times)):
            rate_rps = times * tenant.capacity_rps
            answers = await clients.send(rate_rps, seconds)
            await asyncio.sleep(SETTLE_S)
            phases.append(phase(name, rate_rps, answers, tenant.slo_s, seconds, memory_mib(pid)))
    return phases


def phase(
    name: str,
    rate_rps: float,
    answers: list[Answer],
    slo_s: float,
    seconds: float,
    memory_mib: float,
) -> Phase:
    """Goodput is until the last of them is answered, which is some time after the last came."""
    in_time = [answer for answer in answers if answer.ok and answer.took_s <= slo_s]
    ok = sum(answer.ok for answer in answers)
    until_s = max([seconds, *(count.ended_s for count in in_time)])
    late, refused = ok - len(in_time), len(answers) - ok
    return Phase(name, rate_rps, len(in_time) / until_s, late, refused, memory_mib)


def memory_mib(pid: int, field: str = "VmRSS:") -> float:
    """Resident memory of a process now, or another field of its status."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"process {pid} is gone")


def shown(phases: list[Phase]) -> str:
    """A row per phase."""
    lines = [f"{'':12} {'offered':>8} {'goodput':>8} {'late':>6} {'refused':>8} {'RSS MiB':>8}"]
    for phase in phases:
        lines.append(
            f"{phase.name:12} {phase.offered_rps:8.0f} {phase.goodput_rps:8.1f} {phase.late:6} "
            f"{phase.refused:8} {phase.rss_mib:8.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of every phase")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--times", type=float, default=10.0, help="the flood over the capacity")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--batch-ms", type=float, default=200.0, help="what a batch takes")
    parser.add_argument("--model", default="small-cnn")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    uvloop.install()
    tenant = Tenant(options.model, options.batch, options.batch_ms)
    with tempfile.TemporaryDirectory() as folder, daemon(Path(folder), tenant) as (up, url):
        phases = asyncio.run(measured(up.pid, url, tenant, options))
    print(shown(phases))
    if options.out:
        result = {"machine": describe_machine(), "capacity_rps": tenant.capacity_rps}
        result |= {"seconds": options.seconds, "phases": [asdict(phase) for phase in phases]}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
