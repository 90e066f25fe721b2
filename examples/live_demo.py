"""The whole loop on this machine, twice: migrator, then a static split, on the same requests.

`python examples/live_demo.py [FOLDER [OPTION ...]]` serves examples/live.yaml on two emulated
GPUs, plays its clients against one after the other for three short windows, and writes
FOLDER/live.html. Every window brings new classes, whose labelled samples are there at its start;
the last lines of a run say what its retrainings gained. Nothing but this file's neighbours is
needed; it takes about two and a half minutes. Options are those of `migrator load`, such as
`--labels-at feedback`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

POLICIES = ("migrator", "static-4-3")
WINDOWS = 3
START_S = 180.0
MIGRATOR = (sys.executable, "-m", "migrator")
HERE = Path(__file__).parent
RETRAINED = re.compile(r"model: (\w+): accuracy ([\d.]+) on held-out samples against ([\d.]+) now")


def main() -> int:
    """Both runs and their page."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out")
    states = {name: folder / "live" / name for name in POLICIES}
    shutil.rmtree(folder / "live", ignore_errors=True)
    scenario = _scenario(folder / "live")
    daemons = {name: _served(scenario, name, states[name]) for name in POLICIES}
    try:
        for name in POLICIES:
            _play(scenario, name, states[name], daemons[name])
    finally:
        for daemon in daemons.values():
            daemon.terminate()
            daemon.wait()
    print(
        "Goodput above is what clients saw. The page has the daemon's own view, where goodput is "
        "unknown without labels of answers."
    )
    page = folder / "live.html"
    first, second = (str(states[name]) for name in POLICIES)
    command = [*MIGRATOR, "report", "--state", first, "--beside", second, "--out", str(page)]
    return subprocess.run(command, check=False).returncode


def _scenario(folder: Path) -> Path:
    """The example on any free port, its profiles beside it."""
    folder.mkdir(parents=True)
    shutil.copy(HERE / "live.profiles.json", folder)
    text = (HERE / "live.yaml").read_text(encoding="utf-8")
    path = folder / "live.yaml"
    path.write_text(text.replace("port: 8600", "port: 0"), encoding="utf-8")
    return path


def _served(scenario: Path, policy: str, state: Path) -> subprocess.Popen[bytes]:
    """A daemon that waits for its first request."""
    state.mkdir(parents=True)
    command = [*MIGRATOR, "serve", str(scenario), "--policy", policy, "--from-first-request"]
    with (state / "serve.log").open("wb") as log:
        return subprocess.Popen(
            [*command, "--windows", str(WINDOWS), "--state", str(state)],
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def _play(scenario: Path, policy: str, state: Path, daemon: subprocess.Popen[bytes]) -> None:
    url = _url(state / "serve.log", daemon)
    print(f"{policy}: {WINDOWS} windows at {url}", flush=True)
    command = [*MIGRATOR, "load", str(scenario), "--url", url, "--now", "--labels-at", "start"]
    subprocess.run([*command, "--windows", str(WINDOWS), *sys.argv[2:]], check=True)
    daemon.wait(timeout=60)
    for tenant, after, before in RETRAINED.findall((state / "serve.log").read_text("utf-8")):
        print(f"{policy}: {tenant} retrained, accuracy {float(before):.0%} -> {float(after):.0%}")
    print(flush=True)


def _url(log: Path, daemon: subprocess.Popen[bytes]) -> str:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and daemon.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.startswith("serving at "):
                return line.removeprefix("serving at ")
        time.sleep(0.2)
    raise SystemExit(f"{log}: {log.read_text(encoding='utf-8')[-500:] or 'it does not serve'}")


if __name__ == "__main__":
    sys.exit(main())
