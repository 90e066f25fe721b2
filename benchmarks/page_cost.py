"""What open pages and metrics cost a daemon: python -m benchmarks.page_cost [--out FILE]

One real `migrator serve` with the emulated driver and requests at a fixed rate. Seconds with 20
open pages and a scrape of the metrics every second take turns with seconds without, so that
whatever else the machine does falls on both. The pages are streams as browsers hold them, in a
process of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np

from benchmarks.api_load import Load
from benchmarks.machine import describe_machine

START_S = 180.0
TESTS = Path(__file__).parent.parent / "tests"
SCENARIO = """
version: 1
gpu: A100-40GB
window_s: 20
slot_s: 1
policy: equal-mig
forecaster: last-mean
seed: 0
live: {port: 0}
tenants:
  - name: photos
    model: support.means_model:Means
    profile: profiles.json
    slo_ms: 1000
    batch: 8
    arrivals: {generator: azure, mean_rps: 20}
    live: {benchmark: nc-synthetic}
"""
FAST = {"14": 2.0, "98": 1.0}
PROFILES = {
    "version": 2,
    "profiles": [
        {
            "model": "support.means_model:Means",
            "board": "A100-40GB",
            "latency_ms": {"1": FAST, "8": {size: 3 * ms for size, ms in FAST.items()}},
            "training_ratio": 0.5,
            "interference": 0.1,
            "contention": 0.5,
            "overhead": {"create_s": 0.1, "start_s": 2.0, "load_s": 0.1},
            "provenance": "made up: fast enough that the daemon is what is measured",
        }
    ],
}


@dataclass(frozen=True)
class Part:
    """Some seconds with or without pages."""

    pages: int
    p50_ms: float
    p99_ms: float
    refused: int
    cpu: float
    """Of one core, that the daemon used."""


class _Patient(Load):
    """A connection that the server has ended meanwhile is a refusal, not the end of everything."""

    async def _one(self, due_s: float, counted: bool) -> None:
        try:
            await super()._one(due_s, counted)
        except ConnectionError:
            self.refused += counted


@contextmanager
def daemon(folder: Path) -> Iterator[tuple[str, int]]:
    """Its address and process; ended whatever happens."""
    (folder / "profiles.json").write_text(json.dumps(PROFILES), encoding="utf-8")
    (folder / "page.yaml").write_text(SCENARIO, encoding="utf-8")
    command = [sys.executable, "-m", "migrator", "serve", str(folder / "page.yaml")]
    log = folder / "serve.log"
    # the tests' model learns and answers in no time: it is the daemon that is measured
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--state", str(folder / "state")], stderr=errors, env=environment
        )
    try:
        yield _address(log, process), process.pid
    finally:
        process.terminate()
        process.wait(60)


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and process.poll() is None:
        addresses = re.findall(r'serving at ([^\s"]+)', log.read_text(encoding="utf-8"))
        if addresses:
            return str(addresses[-1])
        time.sleep(0.1)
    raise SystemExit(f"{log}: {log.read_text(encoding='utf-8')[-800:] or 'it does not serve'}")


def request(url: str, port: int) -> bytes:
    """One picture as JSON, as the server says it takes them."""
    (takes,) = httpx.get(f"{url}/v2/models/photos", timeout=20).raise_for_status().json()["inputs"]
    shape = [1, *takes["shape"][1:]]
    data = np.random.default_rng(0).integers(0, 255, int(np.prod(shape))).tolist()
    kind = {"name": takes["name"], "datatype": takes["datatype"], "shape": shape}
    body = json.dumps({"inputs": [{**kind, "data": data}]}).encode()
    head = (
        f"POST /v2/models/photos/infer HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def cpu_s(pid: int) -> float:
    """Seconds of a core that a process has used, its children apart."""
    after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def watched(url: str, pages: int) -> Iterator[None]:
    """So many pages open, and metrics scraped, in another process."""
    if not pages:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.page_cost", "--watch", url, "--pages", str(pages)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "open"
        try:
            yield
        finally:
            process.terminate()


async def watch(url: str, pages: int) -> None:
    """The other process: every page reads the run, its history, and then what is new."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        run = (await client.get("/dashboard/sources")).json()["sources"][0]["runs"][-1]["run"]
        following = []
        for _ in range(pages):
            marker = (await client.get(f"/dashboard/0/{run}")).json()["marker"]
            await client.get(f"/dashboard/0/{run}/history")
            path = f"/dashboard/0/{run}/news?after={marker}"
            following.append(asyncio.create_task(_follow(url, path)))
        await asyncio.sleep(1.0)
        print("open", flush=True)
        while not any(task.done() for task in following):
            await client.get("/metrics")
            await asyncio.sleep(1.0)


async def _follow(url: str, path: str) -> None:
    """Plain sockets: what clients do with what they get must not take the server's cores."""
    host = urlsplit(url)
    reader, writer = await asyncio.open_connection(host.hostname, host.port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host.netloc}\r\n\r\n".encode())
    while await reader.read(2**16):
        pass


async def part(url: str, pid: int, pages: int, rate_rps: float, seconds: float) -> Part:
    """Requests for some seconds, after one that is not counted."""
    port = urlsplit(url).port
    assert port is not None
    load = _Patient(port, request(url, port))
    with watched(url, pages):
        await load.run(rate_rps, 1.0, counted=False)
        before_s, begin_s = cpu_s(pid), time.perf_counter()
        await load.run(rate_rps, seconds, counted=True)
        used = (cpu_s(pid) - before_s) / (time.perf_counter() - begin_s)
    p50, p99 = np.percentile(load.latencies_s, (50, 99)) * 1e3
    return Part(pages, round(float(p50), 2), round(float(p99), 2), load.refused, round(used, 4))


async def measured(settings: argparse.Namespace) -> list[Part]:
    parts = []
    with tempfile.TemporaryDirectory() as folder, daemon(Path(folder)) as (url, pid):
        for number in range(2 * settings.rounds):
            # without, with, with, without: a machine that gets slower falls on both
            pages = settings.pages if number % 4 in (1, 2) else 0
            parts.append(await part(url, pid, pages, settings.rate_rps, settings.seconds))
            print(asdict(parts[-1]), flush=True)
    return parts


def figures(parts: list[Part]) -> dict[str, float]:
    """Medians over the parts, and how those with pages compare to those without."""

    def median(name: str, pages: bool) -> float:
        return float(
            np.median([getattr(part, name) for part in parts if bool(part.pages) is pages])
        )

    medians = {}
    for name in ("p50_ms", "p99_ms", "cpu"):
        medians[f"{name}_without"] = median(name, False)
        medians[f"{name}_with"] = median(name, True)
    medians["p99_ratio"] = round(medians["p99_ms_with"] / medians["p99_ms_without"], 3)
    medians["cpu_of_pages_and_metrics"] = round(medians["cpu_with"] - medians["cpu_without"], 4)
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rate-rps", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=15.0, help="of every part")
    parser.add_argument("--rounds", type=int, default=4, help="parts without, and as many with")
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--watch", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.watch:
        asyncio.run(watch(settings.watch, settings.pages))
        return
    parts = asyncio.run(measured(settings))
    costs = figures(parts)
    print(json.dumps(costs, indent=1))
    if settings.out:
        asked = {k: v for k, v in vars(settings).items() if k not in ("out", "watch")}
        record = {"machine": describe_machine(), "load_average": os.getloadavg()[0]}
        record |= {"settings": asked, "figures": costs, "parts": [asdict(part) for part in parts]}
        settings.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
