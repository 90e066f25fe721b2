"""`migrator serve` as a real process, small and quick, and a client of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import yaml

from migrator.learn.benchmarks.benchmark import Material, Origin
from migrator.learn.registry import benchmark
from support import PYTHONPATH
from support.waiting import LIMIT_S, until

SCENARIO = """
version: 1
gpu: A100-40GB
window_s: {window_s}
slot_s: 1
windows: 3
policy: {policy}
forecaster: last-mean
seed: 0
live: {{port: 0}}
tenants:
"""
TENANT = """
  - name: {name}
    model: {model}
    profile: profiles.json
    slo_ms: 2000
    batch: 4
    arrivals: {{generator: azure, mean_rps: 5}}
    live: {{benchmark: nc-synthetic, epochs: 2, replay: 20, held_out: 0.25}}
"""
MODEL = "support.means_model:Means"
PROFILES: dict[str, Any] = {
    "version": 2,
    "profiles": [
        {
            "model": MODEL,
            "board": "A100-40GB",
            "latency_ms": {"1": {"14": 10, "98": 4}, "4": {"14": 20, "98": 8}},
            "training_ratio": 1.0,
            "interference": 0.1,
            "contention": 1.0,
            "overhead": {"create_s": 0.1, "start_s": 2.0, "load_s": 0.1},
            "provenance": "made up for tests",
        }
    ],
}


PATIENCE_S = 30.0


@dataclass
class Served:
    """A daemon process."""

    process: subprocess.Popen[str]
    url: str
    log: Path
    client: httpx.Client
    """One for all requests: making one takes longer than asking."""

    def get(self, path: str) -> Any:
        return self.client.get(f"{self.url}{path}").json()

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.get("/admin/status")
        return status

    def infer(
        self, tenant: str, picture: np.ndarray, given_id: str, timeout_s: float | None = PATIENCE_S
    ) -> httpx.Response:
        """`timeout_s`: in place of the tenant's objective, which a busy machine may miss."""
        headers = {} if timeout_s is None else {"timeout-ms": f"{1e3 * timeout_s:g}"}
        body = pictures_body(picture[None], given_id)
        return self.client.post(f"{self.url}/v2/models/{tenant}/infer", json=body, headers=headers)

    def feedback(self, tenant: str, given_id: str, label: int) -> httpx.Response:
        url = f"{self.url}/v2/models/{tenant}/feedback"
        return self.client.post(url, json={"id": given_id, "label": label})

    def upload(
        self, tenant: str, pictures: np.ndarray, labels: np.ndarray, given_id: str
    ) -> httpx.Response:
        body = {**pictures_body(pictures, given_id), "labels": labels.tolist()}
        return self.client.post(f"{self.url}/v2/models/{tenant}/samples", json=body)

    def act(self, action: str, tenant: str | None = None) -> tuple[int, dict[str, Any]]:
        """The status and the answer to an operator's action."""
        body = {"action": action, "tenant": tenant}
        answer = self.client.post(f"{self.url}/admin/actions", json=body)
        return answer.status_code, answer.json()

    def wait_for(self, what: Callable[[dict[str, Any]], bool], words: str) -> dict[str, Any]:
        def looked() -> dict[str, Any] | None:
            return status if what(status := self.status()) else None

        def why() -> str:
            return f"{words}; {json.dumps(self.status())}; {self.said()}"

        seen: dict[str, Any] = until(looked, why)
        return seen

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")[-2000:]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)


def pictures_body(pictures: np.ndarray, given_id: str = "") -> dict[str, Any]:
    """A request with these pictures."""
    tensor = {"name": "input", "datatype": "UINT8", "shape": list(pictures.shape)}
    return {"id": given_id, "inputs": [{**tensor, "data": pictures.reshape(-1).tolist()}]}


def scenario_file(
    folder: Path, *tenants: str, window_s: int = 3, policy: str = "static-4-3", **profile: object
) -> Path:
    """A scenario of these tenants, with its profile beside it; `profile`: what is other in it."""
    made: dict[str, Any] = {**PROFILES["profiles"][0], **profile}
    profiles = {**PROFILES, "profiles": [made]}
    (folder / "profiles.json").write_text(json.dumps(profiles), encoding="utf-8")
    text = SCENARIO.format(window_s=window_s, policy=policy)
    text += "".join(TENANT.format(name=tenant, model=made["model"]) for tenant in tenants)
    path = folder / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def section(folder: Path, name: str, **keys: Any) -> dict[str, Any]:
    """A tenant's section as the scenario in the folder has others; `keys`: what is other in it."""
    model = yaml.safe_load((folder / "small.yaml").read_text("utf-8"))["tenants"][0]["model"]
    return {**tenant_section(name, model), **keys}


def tenant_section(name: str, model: str = MODEL) -> dict[str, Any]:
    """A tenant's section in every scenario of small daemons."""
    made: list[dict[str, Any]] = yaml.safe_load(TENANT.format(name=name, model=model))
    return made[0]


@contextmanager
def started(
    path: Path, state: Path, *options: str, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """The daemon's process, which may not serve yet; ended whatever happens."""
    environment = {
        **os.environ,
        "PYTHONPATH": PYTHONPATH,
        "MIGRATOR_STATE": str(state),
        "MIGRATOR_EMULATED_PACE": "0.1",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    with log_of(state).open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "migrator", "serve", str(path), *options],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@contextmanager
def served(
    path: Path, state: Path, *options: str, token: str = "", **variables: str
) -> Iterator[Served]:
    """The daemon, serving; ended whatever happens. `token`: for administration."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    log, client = log_of(state), httpx.Client(timeout=60, headers=headers)
    with started(path, state, *options, **variables) as process, client:
        yield Served(process, _url(process, log, client), log, client)


def log_of(state: Path) -> Path:
    """What the daemons of a state folder said."""
    return state.parent / f"{state.name}.log"


@cache
def material() -> Material:
    """The samples that the tenants' benchmark makes from seed 0."""
    return benchmark("nc-synthetic").load(Origin(seed=0))


def samples(scenario: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures and labels of the classes that are new in a scenario of the benchmark, mixed."""
    every, classes = material().train, benchmark("nc-synthetic").classes_each
    new = (every.arrives == scenario) & (every.labels >= scenario * classes)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(new))[:count]
    return every.inputs[rows], every.labels[rows]


def _url(process: subprocess.Popen[str], log: Path, client: httpx.Client) -> str:
    def why() -> str:
        return f"it serves: {log.read_text(encoding='utf-8')[-2000:]}"

    def found() -> str:
        if process.poll() is not None:
            raise AssertionError(f"it has ended; never: {why()}")
        said = re.findall(r'serving at ([^\s"]+)', log.read_text(encoding="utf-8"))
        with suppress(httpx.HTTPError, ValueError):  # the line is of the life before
            if said and client.get(f"{said[-1]}/admin/status").json()["pid"] == process.pid:
                return str(said[-1])
        return ""

    url: str = until(found, why)
    return url
