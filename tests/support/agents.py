"""A small cluster of emulated GPUs: its scenario, and an agent without Ray."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import yaml

from migrator.cluster.fleet.cluster_run import ClusterRun, read_run
from migrator.learn.registry import benchmark
from support import PYTHONPATH
from support.http_client import HTTP
from support.live_daemon import PROFILES, pictures_body, tenant_section
from support.means_model import Means

VARIABLES = {"PYTHONPATH": PYTHONPATH, "MIGRATOR_EMULATED_PACE": "0.1", "OMP_NUM_THREADS": "1"}
PICTURE = np.zeros((3, 16, 16), np.uint8)
_WEIGHTS = "first.safetensors"


def cluster_file(
    folder: Path,
    tenants: Sequence[str],
    gpus: Sequence[dict[str, Any]],
    *,
    window_s: int = 6,
    trained: bool = False,
    **keys: Any,
) -> Path:
    """A cluster scenario of small tenants, with its profile beside it.

    `trained`: they begin with given weights, which takes no process of its own.
    """
    (folder / "profiles.json").write_text(json.dumps(PROFILES), encoding="utf-8")
    data: dict[str, Any] = {
        "version": 1,
        "window_s": window_s,
        "windows": 3,
        "policy": "equal-mig",
        "forecaster": "last-mean",
        "seed": 0,
        "live": {"port": 0},
        "cluster": {"gpus": [{"board": "A100-40GB", **gpu} for gpu in gpus]},
        "tenants": [_tenant(tenant, trained) for tenant in tenants],
        **keys,
    }
    if trained:
        Means(benchmark("nc-synthetic").classes).save(folder / _WEIGHTS)
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def cluster_run(
    folder: Path, tenants: Sequence[str], gpus: Sequence[dict[str, Any]], **keys: Any
) -> ClusterRun:
    """The same, read."""
    path = cluster_file(folder, tenants, gpus, **keys)
    return read_run(
        path,
        driver="emulated",
        shared=str(folder / "shared"),
        state=folder / "state",
        began_s=time.time(),
    )


def infer(url: str, tenant: str, given_id: str = "", timeout_s: float = 20.0) -> httpx.Response:
    """One picture."""
    body = pictures_body(PICTURE[None], given_id)
    return HTTP.post(f"{url}/v2/models/{tenant}/infer", json=body, timeout=timeout_s)


def feedback(url: str, tenant: str, given_id: str, label: int) -> httpx.Response:
    """The label of a request that was answered there."""
    body = {"id": given_id, "label": label}
    return HTTP.post(f"{url}/v2/models/{tenant}/feedback", json=body, timeout=20)


def _tenant(name: str, trained: bool) -> dict[str, Any]:
    section = tenant_section(name)
    if trained:
        section["live"]["weights"] = _WEIGHTS
    return section
