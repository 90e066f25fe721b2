"""What router and API add to a bare echo: python -m benchmarks.api_latency [--out FILE]

Two servers of the same kind, each in a process of its own: ours with a worker that answers at
once, and a Starlette route that reads the body and answers. The same requests go to one, then to
the other, in turns, so that whatever else the machine does falls on both. Measured are latencies
as the client sees them, and the CPU time (user and system) of each server process per request.
`--before FOLDER`: the src folder of another version of MIGRator, measured in the same turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.api_load import Load
from benchmarks.machine import describe_machine
from migrator.serving.http.access import Tokens, digest
from migrator.serving.http.app import application
from migrator.serving.http.operations import ApiState, Backend, Feedback
from migrator.serving.http.protocol import WindowNow
from migrator.serving.http.requests import ClientLimits
from migrator.serving.http.server import ApiServer
from migrator.serving.queue import QueueSettings
from migrator.serving.router import Router
from migrator.serving.workers.messages import Answered, ModelInterface

SIDE, CLASSES, TOKEN = 32, 10, "benchmark"
PATH = "/v2/models/images/infer"


@dataclass(frozen=True)
class Row:
    """One server: its latencies in milliseconds and its CPU time per request."""

    server: str
    requests: int
    refused: int
    median_ms: float
    p90_ms: float
    p99_ms: float
    cpu_us: float | None = None
    """Microseconds, user and system; None: not measured."""


class InstantWorker:
    """Answers at once."""

    name = "instant"

    async def infer(
        self,
        inputs: NDArray[Any],
        request_ids: str = "",
        trace_context: Mapping[str, str] | None = None,
    ) -> Answered:
        del request_ids, trace_context
        return Answered(np.zeros((len(inputs), CLASSES), np.float32), 1)

    async def judge(self, answers: NDArray[Any]) -> tuple[bool, ...]:
        return (True,) * len(answers)


def served_application() -> Starlette:
    router = Router({"images": QueueSettings("images", 0.2, 8)})
    router.attach("images", InstantWorker(), lambda _: 0.0)

    async def feedback(_: Feedback) -> bool:
        return True

    backend = Backend(
        router=router,
        models={"images": ModelInterface("images", "UINT8", (3, SIDE, SIDE), CLASSES)},
        feedback=feedback,
        version=lambda _: 1,
        window=lambda: WindowNow(0, 0.0, 200.0),
        status=dict,
    )
    # small enough that the warm-up fills it, as in a server that has run for a minute
    limits = ClientLimits(recent_bytes=2**20)
    return application(ApiState(backend, Tokens({"images": digest(TOKEN)}), limits))


def echo_application() -> Starlette:
    answer = json.dumps({"outputs": [{"name": "scores", "data": [0.0] * CLASSES}]}).encode()

    async def echo(request: Request) -> Response:
        await request.body()
        return Response(answer, media_type="application/json")

    return Starlette(routes=[Route(PATH, echo, methods=["POST"])])


async def serve(kind: str) -> None:
    """A server until its input ends; each line of input is answered with the CPU time so far."""
    app = served_application() if kind == "migrator" else echo_application()
    server = ApiServer(app, tokens=Tokens(admin=digest("a")), port=0)
    await server.start()
    print(server.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, _print_cpu_time)
    await server.stop()


def _print_cpu_time() -> None:
    for _ in sys.stdin:
        print(time.process_time(), flush=True)


@dataclass(frozen=True)
class ServerProcess:
    """A server of this benchmark."""

    port: int
    process: subprocess.Popen[str]

    def cpu_s(self) -> float:
        """CPU time of the process so far, user and system."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


@contextmanager
def running(kind: str, source: Path | None = None) -> Iterator[ServerProcess]:
    """A server process, of the version of MIGRator in that folder."""
    environment = os.environ | ({"PYTHONPATH": str(source.absolute())} if source else {})
    command = [sys.executable, "-m", "benchmarks.api_latency", "--serve", kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        yield ServerProcess(int(process.stdout.readline()), process)
        process.communicate()


def request(binary: bool) -> bytes:
    """One image."""
    tensor: dict[str, Any] = {"name": "input", "datatype": "UINT8", "shape": [1, 3, SIDE, SIDE]}
    pixels = bytes(3 * SIDE * SIDE)
    if binary:
        tensor["parameters"] = {"binary_data_size": len(pixels)}
    else:
        tensor["data"] = list(pixels)
    head = json.dumps({"inputs": [tensor]}).encode()
    body = head + pixels if binary else head
    headers = [f"POST {PATH} HTTP/1.1", "host: localhost", f"authorization: Bearer {TOKEN}"]
    headers += [f"content-length: {len(body)}"]
    headers += [f"inference-header-content-length: {len(head)}"] if binary else []
    return "\r\n".join([*headers, "", ""]).encode() + body


async def measured(
    options: argparse.Namespace,
    ports: dict[str, int],
    clocks: Mapping[str, Callable[[], float]] | None = None,
) -> list[Row]:
    """All rounds, the servers in turns; `clocks` give the CPU time of servers so far."""
    sent, clocks = request(binary=not options.json), clocks or {}
    loads = {kind: Load(port, sent) for kind, port in ports.items()}
    cpu_s = dict.fromkeys(clocks, 0.0)
    for load in loads.values():
        await load.run(options.rate, 1.0, counted=False)
    for _ in range(options.rounds):
        for kind, load in loads.items():
            before_s = clocks[kind]() if kind in clocks else 0.0
            await load.run(options.rate, options.seconds, counted=True)
            if kind in clocks:
                cpu_s[kind] += clocks[kind]() - before_s
    return [row(kind, load, cpu_s.get(kind)) for kind, load in loads.items()]


def row(kind: str, load: Load, cpu_s: float | None) -> Row:
    median, p90, p99 = (
        np.percentile(np.array(load.latencies_s) * 1e3, [50, 90, 99]).round(3).tolist()
    )
    count = len(load.latencies_s)
    cpu_us = None if cpu_s is None else round(1e6 * cpu_s / count, 1)
    return Row(kind, count, load.refused, median, p90, p99, cpu_us)


def shown(rows: list[Row]) -> str:
    """The rows and their difference as a table."""
    ours, echo = rows[:2]
    lines = [f"{'':10} {'requests':>8} {'refused':>8} {'median':>8} {'90%':>8} {'99%':>8}  ms"]
    for result in rows:
        lines.append(
            f"{result.server:10} {result.requests:8} {result.refused:8} {result.median_ms:8.2f} "
            f"{result.p90_ms:8.2f} {result.p99_ms:8.2f}"
        )
    differences = [getattr(ours, key) - getattr(echo, key) for key in MEASURED]
    lines.append(
        f"{'added':10} {'':17} " + " ".join(f"{difference:8.2f}" for difference in differences)
    )
    lines += [
        f"{kind}: {cpu_us:.0f} us of CPU time per request, {ratio:.2f} times the echo"
        for kind, (cpu_us, ratio) in cpu_times(rows).items()
    ]
    return "\n".join(lines)


def cpu_times(rows: list[Row]) -> dict[str, tuple[float, float]]:
    """CPU time per request in microseconds, and as a multiple of the echo, of measured servers."""
    echo_us = rows[1].cpu_us
    if echo_us is None:
        return {}
    return {
        result.server: (result.cpu_us, round(result.cpu_us / echo_us, 2))
        for result in rows
        if result.cpu_us is not None
    }


MEASURED = ("median_ms", "p90_ms", "p99_ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=500.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one turn")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--json", action="store_true", help="the image as JSON, not as bytes")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--before", type=Path, help="src folder of another version")
    parser.add_argument("--serve", choices=("migrator", "echo"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = 2 if options.quick else options.rounds
    uvloop.install()
    if options.serve:
        asyncio.run(serve(options.serve))
        return
    load_average = os.getloadavg()[0]  # before it begins: what else the machine is doing
    with ExitStack() as stack:
        servers = {kind: stack.enter_context(running(kind)) for kind in ("migrator", "echo")}
        if options.before:
            servers["before"] = stack.enter_context(running("migrator", options.before))
        ports = {kind: server.port for kind, server in servers.items()}
        clocks = {kind: server.cpu_s for kind, server in servers.items()}
        rows = asyncio.run(measured(options, ports, clocks))
    print(shown(rows))
    if options.out:
        added = {key: getattr(rows[0], key) - getattr(rows[1], key) for key in MEASURED}
        result = {"machine": describe_machine(), "rate_rps": options.rate, "json": options.json}
        result |= {"load_average": round(load_average, 2)}
        result |= {"rows": [asdict(result) for result in rows], "added": added}
        ratios = {kind: ratio for kind, (_, ratio) in cpu_times(rows).items()}
        result |= {"cpu_times_echo": ratios}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
