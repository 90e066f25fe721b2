"""What a gateway adds to a direct call: python -m benchmarks.gateway [--rate 300] [--out FILE]

One API server with a worker that answers at once, and `migrator gateway` before it, each a process
of its own. The same requests go to the server, then through the gateway, in short turns, so that
whatever else the machine does falls on both.
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
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import msgspec
import uvloop

from benchmarks.api_latency import MEASURED, measured, running, shown
from benchmarks.machine import describe_machine
from migrator.cluster.fleet.cluster_map import ClusterMap

START_S = 60.0


@contextmanager
def gateway(port: int, folder: Path) -> Iterator[int]:
    """A gateway before the server on that port, and its own port."""
    server = f"http://127.0.0.1:{port}"
    cluster_map = ClusterMap(epoch=1, version=1, homes={"images": server}, pages={"gpu": server})
    (folder / "map.json").write_bytes(msgspec.json.encode(cluster_map))
    log = folder / "gateway.log"
    command = [sys.executable, "-m", "migrator", "gateway", "--port", "0"]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--map", str(folder / "map.json")], stderr=errors, stdout=errors
        )
    try:
        until_s = time.monotonic() + START_S
        while not (said := re.search(r"serving at \S+:(\d+)", log.read_text())):
            if process.poll() is not None or time.monotonic() > until_s:
                raise SystemExit(f"no gateway: {log.read_text()}")
            time.sleep(0.05)
        yield int(said[1])
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=300.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=1.0, help="of one turn")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--json", action="store_true", help="the image as JSON, not as bytes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.rounds = 2 if options.quick else options.rounds
    uvloop.install()
    load_average = os.getloadavg()[0]  # before it begins: what else the machine is doing
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        direct = stack.enter_context(running("migrator")).port
        ports = {"gateway": stack.enter_context(gateway(direct, folder)), "direct": direct}
        rows = asyncio.run(measured(options, ports))
    print(shown(rows))
    if options.out:
        added = {key: getattr(rows[0], key) - getattr(rows[1], key) for key in MEASURED}
        result = {"machine": describe_machine(), "rate_rps": options.rate, "json": options.json}
        result |= {"load_average": round(load_average, 2)}
        result |= {"rows": [asdict(row) for row in rows], "added": added}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
