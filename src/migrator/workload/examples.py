"""The files that `migrator example` prints, and the scenario of one model without a file."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from migrator.core.errors import InputError
from migrator.workload.file import ASSUMED, short_name
from migrator.workload.workloads import all_workloads, workload_yaml

_FILES = {
    "quickstart": "quickstart.yaml",
    "cluster": "cluster.yaml",
    "layout": "layout.yaml",
    "policy": "policy.py.txt",
    "model": "model.py.txt",
}
_TRIAL = ("small-cnn", "nc-synthetic", f"{ASSUMED}            # nothing is measured; for trials")
_OWN_PROFILE = "my.profiles.json     # measured by `migrator profile my.yaml`"
NAMES = ("window", "quickstart", "live", "cluster", "layout", "policy", "model")


def example_text(name: str) -> str:
    """The example called `name`, except `window`; InputError lists the names."""
    if name == "live":
        return live_text()
    if name in _FILES:
        return _packaged(_FILES[name])
    if name.upper() in all_workloads():
        return workload_yaml(name.upper())
    raise InputError(
        f"example: there is no {name[:100]!r}; use {', '.join(NAMES)}, W1 to W16 or P1"
    )


def live_text(model: str | None = None, benchmark: str | None = None) -> str:
    """A live scenario of one tenant; by default a small model that needs no other file."""
    if model is None and benchmark is None:
        chosen, samples, profile = _TRIAL
    else:
        chosen, samples = model or "hf:my-model", benchmark or "folder:my-pictures"
        profile = _OWN_PROFILE
    text = _packaged("live.yaml").replace("BENCHMARK", _quoted(samples))
    return text.replace("MODEL", _quoted(chosen)).replace("PROFILE", profile)


def trial_entry(model: str, benchmark: str, board: str) -> dict[str, object]:
    """A live scenario of one model without a file; its profile is assumed."""
    return {
        "version": 1,
        "gpu": board,
        "window_s": 60.0,
        "live": {"port": 8600},
        "tenants": [
            {
                "name": tenant_name(model),
                "model": model,
                "profile": ASSUMED,
                "slo_ms": 1000.0,
                "batch": 4,
                "arrivals": {"generator": "azure", "mean_rps": 10.0},
                "live": {"benchmark": benchmark},
            }
        ],
    }


def tenant_name(model: str) -> str:
    """A name for the model in addresses: the last part of its path, its class or its own name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", short_name(model)).strip("-.")[:64] or "model"


def _packaged(name: str) -> str:
    return files("migrator.workload").joinpath(name).read_text(encoding="utf-8")


def _quoted(text: str) -> str:
    """A text as YAML: in quotes where it would mean something else without them."""
    return text if re.fullmatch(r"[A-Za-z][\w./@:-]*[\w/]", text) else json.dumps(text)
