"""The kinds of files that MIGRator reads or writes, and how one is recognised by its content."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OWN_INPUT = ("/dev/stdin", "/dev/fd/")
"""What a shell's pipe is called, which a user may name as the file of a command."""
_MOST_BYTES = 1 << 26
_HEAD_BYTES = 64
_MOST_YAML_BYTES = 1 << 20
"""YAML is read about a thousand times as slowly as JSON."""


@dataclass(frozen=True)
class FileKind:
    """A kind of file that MIGRator reads or writes."""

    name: str
    """What it is, with its article."""
    use: str
    """What to do with it; {file} stands for its path."""


PROBLEM = FileKind("a planning problem", "use `migrator plan {file}`")
PLAN = FileKind("a plan", "use `migrator check PROBLEM {file}`")
SCENARIO = FileKind("a scenario", "use `migrator simulate {file}` or `migrator serve {file}`")
CLUSTER = FileKind("a cluster scenario", "use `migrator cluster plan {file}`")
LAYOUT = FileKind("a layout of a GPU", "use `migrator gpu apply {file} --dry-run`")
PROFILES = FileKind("a profile file", "name it as `profile` of a tenant in a scenario")
PLACEMENT = FileKind("a placement", "use `migrator cluster plan SCENARIO --current {file}`")
RUN = FileKind("the JSON of a simulated run", "read it with your own programs")
RECORDS = FileKind("the records of a run", "use `migrator dashboard {file}`")
TRACE = FileKind("a trace of requests", "name it as `trace` in a scenario's arrivals")
MODULE = FileKind("a Python module", "name its policy or model as MODULE:NAME")
WEIGHTS = FileKind("a file of weights", "name it as `live.weights` of a tenant in a scenario")
PAGE = FileKind("a page", "open it in a browser")
PICTURE = FileKind("a picture", "open it in a viewer")
_HEADS = {
    b"SQLite format 3\0": RECORDS,
    b"\x89PNG": PICTURE,
    b"<!DOCTYPE html": PAGE,
    b"<!doctype html": PAGE,
}
_ENDINGS = {".py": MODULE, ".safetensors": WEIGHTS, ".html": PAGE, ".csv": TRACE, ".gz": TRACE}


def is_special(path: Path) -> bool:
    """Whether the path is a FIFO, socket or device, whose reading may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # ValueError: a path with a null character
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def may_never_end(path: Path) -> bool:
    """Whether the path is a FIFO, socket or device, and not a pipe of the user's shell."""
    return is_special(path) and not str(path).startswith(_OWN_INPUT)


def recognise(path: Path) -> FileKind | None:
    """The kind of the file; None if it cannot be read or is of no known kind."""
    if is_special(path):
        return None
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            for start, kind in _HEADS.items():
                if head.startswith(start):
                    return kind
            text = head + file.read(_MOST_BYTES)
    except (OSError, ValueError):  # ValueError: a path with a null character
        return None
    data = None if path.suffix in _ENDINGS else _loaded(text)
    return _by_keys(data) if isinstance(data, Mapping) else _ENDINGS.get(path.suffix)


def wrong_kind(path: Path, expected: Collection[FileKind]) -> str | None:
    """The sentence for a file of another kind than expected; None if it may be as expected."""
    kind = recognise(path)
    if kind is None or not expected or kind in expected:
        return None
    wanted = " or ".join(kind.name for kind in expected)
    return f"this is {kind.name}, not {wanted}; {kind.use.format(file=path)}"


def _loaded(text: bytes) -> object:
    try:
        return json.loads(text)
    except ValueError:
        pass
    except RecursionError:
        return None
    if len(text) > _MOST_YAML_BYTES:
        return None
    import yaml  # seldom needed, and not loaded by servers

    try:
        # every value stays text, which is enough to recognise a file and runs no constructor
        return yaml.load(text.decode("utf-8-sig"), Loader=yaml.BaseLoader)
    except (ValueError, yaml.YAMLError, RecursionError):
        return None


def _by_keys(data: Mapping[str, Any]) -> FileKind | None:
    for kind, matches in _KEYS:
        if matches(data):
            return kind
    return None


def _has_models(data: Mapping[str, Any]) -> bool:
    tenants = data["tenants"] if isinstance(data["tenants"], list) else []
    return "window_s" in data or any(
        isinstance(tenant, Mapping)
        and not tenant.keys().isdisjoint(("model", "arrivals", "profile"))
        for tenant in tenants
    )


_SCENARIO_KEYS = ("forecaster", "gpu", "policy", "tenants", "window_s", "windows")
"""Keys of a scenario, which may lack others: one of them is enough if nothing else matches."""
_KEYS: tuple[tuple[FileKind, Callable[[Mapping[str, Any]], bool]], ...] = (
    (PLAN, lambda data: "upper_bound" in data and "slots" in data),
    (PROBLEM, lambda data: "tenants" in data and ("slots" in data or "charge" in data)),
    (PLACEMENT, lambda data: "placement" in data),
    (CLUSTER, lambda data: "cluster" in data),
    (RUN, lambda data: "goodput" in data and "windows" in data),
    (SCENARIO, lambda data: "tenants" in data and _has_models(data)),
    (LAYOUT, lambda data: "instances" in data or "mig-configs" in data),
    (PROFILES, lambda data: "profiles" in data or "latency_ms" in data),
    (PROBLEM, lambda data: "slots" in data or "charge" in data),
    (SCENARIO, lambda data: not data.keys().isdisjoint(_SCENARIO_KEYS)),
)
"""Kind -> whether an object's keys are of it; the first that matches counts."""
