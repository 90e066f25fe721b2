"""Size and shape of the code: python -m benchmarks.code_structure [--checkout FOLDER] [--json]

Counts lines, modules and imports of a checkout and the words of its docs, times `migrator --help`,
and records which of our modules execute while a live daemon answers one request and while it works
through one window (in the daemon and in its worker processes). The checkout needs its own `.venv`
with the extras.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.request
from contextlib import suppress
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

TRACER = """
import os, signal, sys
seen = set()
def note(frame, event, argument):
    if event == "call":
        name = frame.f_code.co_filename
        if "/migrator/" in name:
            seen.add(name.rpartition("/migrator/")[2])
def start(*_):
    seen.clear()
    sys.setprofile(note)
def stop(*_):
    sys.setprofile(None)
    folder = os.environ["TRACE_FOLDER"]
    with open(f"{folder}/{os.getpid()}.tmp", "w") as file:
        file.write("\\n".join(sorted(seen)))
    os.replace(f"{folder}/{os.getpid()}.tmp", f"{folder}/{os.getpid()}.txt")
if os.environ.get("TRACE_FOLDER"):
    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, stop)
"""
PORT = 8637


def count(checkout: Path) -> dict[str, float]:
    """Lines, modules and imports of ours per module in src; lines in tests."""
    modules = sorted((checkout / "src").rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in modules]
    imports = [
        sum(
            isinstance(node, ast.ImportFrom) and (node.module or "").startswith("migrator")
            for node in ast.walk(ast.parse(text))
        )
        for text in texts
    ]
    tests = sorted((checkout / "tests").rglob("*.py"))
    sizes = [len(text.splitlines()) for text in texts]
    return {
        "lines": sum(sizes),
        "modules": len(modules),
        "modules_up_to_60_lines": sum(size <= 60 for size in sizes),
        "median_lines": median(sizes),
        "imports_per_module": round(sum(imports) / len(modules), 2),
        "test_lines": sum(len(path.read_text("utf-8").splitlines()) for path in tests),
        "docs_words": docs_words(checkout),
    }


def docs_words(checkout: Path) -> int:
    """Words of README, CHANGELOG, CONTRIBUTING and docs that have a letter: no figures, no bars."""
    pages = [*checkout.glob("*.md"), *(checkout / "docs").rglob("*.md")]
    return sum(
        bool(re.search("[A-Za-z]", word))
        for page in pages
        for word in page.read_text(encoding="utf-8").split()
    )


def help_s(python: Path) -> float:
    """Seconds of `migrator --help`, the median of nine."""
    times = []
    for _ in range(9):
        began = time.perf_counter()
        subprocess.run([python, "-m", "migrator", "--help"], capture_output=True, check=True)
        times.append(time.perf_counter() - began)
    return round(median(times), 3)


def _processes(folder: Path) -> list[int]:
    mark = f"TRACE_FOLDER={folder}".encode()
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
        except OSError:
            continue
    return pids


def _can_trace(pid: int) -> bool:
    """Whether the process handles SIGUSR1: others (resource trackers) would die of it."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)
    return False


def _traced(folder: Path, seconds: float, request: bytes | None) -> set[str]:
    """Modules that execute in these seconds, with or without one request."""
    for old in folder.glob("*.txt"):
        old.unlink()
    pids = [pid for pid in _processes(folder) if _can_trace(pid)]
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    began = time.monotonic()
    if request is not None:
        _post("/v2/models/photos/infer", request)
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    for pid in pids:
        with suppress(ProcessLookupError):  # a worker may have been replaced
            os.kill(pid, signal.SIGUSR2)
    time.sleep(1)
    return {line for path in folder.glob("*.txt") for line in path.read_text("utf-8").splitlines()}


def _post(path: str, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    asked = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", body, headers)
    with urllib.request.urlopen(asked, timeout=30) as reply:
        reply.read()


def _example_request() -> bytes:
    """One input of zeros, as the model's metadata describes it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v2/models/photos", timeout=30) as reply:
        described = json.loads(reply.read())["inputs"][0]
    shape = [max(1, part) for part in described["shape"]]
    tensor = {**{key: described[key] for key in ("name", "datatype")}, "shape": shape}
    return json.dumps({"inputs": [{**tensor, "data": [0] * prod(shape)}]}).encode()


def _wait_until_ready() -> None:
    for _ in range(240):
        try:
            url = f"http://127.0.0.1:{PORT}/v2/models/photos/ready"
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise SystemExit("the daemon did not become ready")


def traced_modules(checkout: Path, python: Path) -> dict[str, Any]:
    """The modules of one request, and of one window under load."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "trace").mkdir()
        (place / "sitecustomize.py").write_text(TRACER, encoding="utf-8")
        environment = {
            **os.environ,
            "PYTHONPATH": str(place),
            "TRACE_FOLDER": str(place / "trace"),
            "MIGRATOR_STATE": str(place / "state"),
        }
        command = ["-m", "migrator", "serve", "examples/live.yaml", "--port", str(PORT)]
        daemon = subprocess.Popen(
            [python, *command], cwd=checkout, env=environment, stderr=subprocess.DEVNULL
        )
        try:
            _wait_until_ready()
            request = _example_request()
            _post("/v2/models/photos/infer", request)
            # what the daemon does by itself at the same time is not part of the request
            idle = set[str]().union(*(_traced(place / "trace", 1, None) for _ in range(5)))
            answered = _traced(place / "trace", 1, request)
            window = _traced(place / "trace", 21, request)
        finally:
            daemon.terminate()
            daemon.wait()
    return {"request": sorted(answered - idle), "window": sorted(window | answered)}


def main() -> None:
    """Print the figures of a checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkout", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--json", action="store_true", help="with the names of the modules")
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    python = checkout / ".venv" / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{python} is missing; `make check` in the checkout makes it")
    traced = traced_modules(checkout, python)
    figures = {**count(checkout), "help_s": help_s(python)}
    if options.json:
        print(json.dumps({**figures, **traced}, indent=1))
        return
    for name, value in figures.items():
        print(f"{name:24} {value:g}")
    for name, modules in traced.items():
        print(f"modules of a {name:11} {len(modules)}")


if __name__ == "__main__":
    main()
