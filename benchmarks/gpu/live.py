"""Two tenants with real models and real data, served live on a GPU shared by MPS, policy by policy.

    PYTHONPATH=src:benchmarks/gpu MIGRATOR_DATA=... python benchmarks/gpu/live.py --out FOLDER

Measures the image model's profile first, pre-trains both models once, then serves the same
requests under every policy, three windows each. In the folder afterwards: what clients saw
(POLICY.load.json), the daemon's records (POLICY.records.db), the profile and the scenario.
`benchmarks/gpu/live_results.py` makes tables of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PORT = 8611
PROFILED = """version: 1
gpu: H200-141GB
tenants:
  - name: pictures
    model: live_models:ConvNextB384
    slo_ms: 100
    arrivals: {generator: azure, mean_rps: 100}
"""


def main() -> None:
    """Everything into one folder; what is there already is not done again."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--policies", default="migrator,ekya,paris")
    parser.add_argument("--driver", default="mps")
    parser.add_argument("--scenario", type=Path, default=HERE / "live.yaml")
    parser.add_argument("--labelled", default="0.05", help="part of the labels that are sent")
    parser.add_argument("--labels-at", default="feedback", choices=("feedback", "start"))
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--state", type=Path, default=Path("/tmp/migrator-live"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    scenario = _prepared(asked)
    begun = asked.state / "begun"
    if not begun.exists():
        _pretrain(scenario, begun, asked)
    for policy in asked.policies.split(","):
        state = asked.state / policy
        shutil.rmtree(state, ignore_errors=True)
        shutil.copytree(begun, state)
        _run(scenario, policy, state, asked)


def _prepared(asked: argparse.Namespace) -> Path:
    """The scenario beside its profiles."""
    folder: Path = asked.out
    scenario = folder / Path(asked.scenario).name
    shutil.copy(asked.scenario, scenario)
    profiles = folder / "live.profiles.json"
    kept = asked.scenario.with_name(profiles.name)
    if kept.exists():
        shutil.copy(kept, profiles)
    if not profiles.exists():
        only = folder / "profiled.yaml"
        only.write_text(PROFILED, encoding="utf-8")
        words = ["profile", str(only), "--batches", "1,2,4", "--out", str(profiles)]
        _timed("profiles", lambda: subprocess.run(_verb(words), check=True))
    return scenario


def _pretrain(scenario: Path, state: Path, asked: argparse.Namespace) -> None:
    """The first versions, so that every policy begins with the same ones."""
    unfinished = state.with_name("begun.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    log = asked.out / "pretraining.log"
    with _served(scenario, "static-4-3", unfinished, log, asked) as daemon:
        _timed("pre-training and start", lambda: _until_serving(daemon, log))
    # windows of the run before are not this run's
    for records in unfinished.glob("live/*/records.db*"):
        records.unlink()
    unfinished.rename(state)


def _run(scenario: Path, policy: str, state: Path, asked: argparse.Namespace) -> None:
    log = asked.out / f"{policy}.log"
    with _served(scenario, policy, state, log, asked) as daemon:
        _timed(f"{policy}: start", lambda: _until_serving(daemon, log))
        load = ["load", str(scenario), "--url", f"http://127.0.0.1:{PORT}", "--now"]
        load += ["--windows", str(asked.windows), "--labelled", asked.labelled, "--json"]
        load += ["--labels-at", asked.labels_at]
        with (asked.out / f"{policy}.load.json").open("wb") as told:
            _timed(f"{policy}: load", lambda: subprocess.run(_verb(load), stdout=told, check=True))
        daemon.wait(30)
    found = next(state.glob("live/*/records.db"))
    shutil.copy(found, asked.out / f"{policy}.records.db")
    for log in state.glob("live/*/workers/*log*"):
        sys.stdout.write(log.read_text(encoding="utf-8", errors="replace")[-2000:])


class _Daemon(subprocess.Popen[bytes]):
    """Stopped as an operator would, when we are done with it."""

    def __exit__(self, *_: object) -> None:
        if self.poll() is None:
            self.send_signal(signal.SIGTERM)
            try:
                self.wait(40)
            except subprocess.TimeoutExpired:
                self.kill()


def _served(
    scenario: Path, policy: str, state: Path, log: Path, asked: argparse.Namespace
) -> _Daemon:
    words = ["serve", str(scenario), "--driver", asked.driver, "--policy", policy]
    words += ["--port", str(PORT), "--state", str(state), "--from-first-request"]
    words += ["--windows", str(asked.windows)]
    state.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as told:
        return _Daemon(_verb(words), stdout=told, stderr=told)


def _until_serving(daemon: _Daemon, log: Path) -> None:
    while b"serving at" not in log.read_bytes():
        if daemon.poll() is not None:
            raise SystemExit(f"the daemon ended with {daemon.returncode}; see {log}")
        time.sleep(0.2)


def _verb(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "migrator", *words]


def _timed(what: str, doing: object) -> None:
    assert callable(doing)
    began = time.monotonic()
    doing()
    print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
