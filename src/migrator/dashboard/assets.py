"""The files of the page, and plotly.js from the installed package."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

KINDS: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PLOTLY_MISSING = "pip install 'migrator[figures]'"


@dataclass(frozen=True)
class Asset:
    """A file as the server sends it."""

    data: bytes
    kind: str
    etag: str


def find_asset(name: str) -> Asset | None:
    """A file of the page; None if there is none of that name."""
    return _assets().get(name)


@cache
def _assets() -> Mapping[str, Asset]:
    """All files by name, read once: the name in a request is never used as a path."""
    found = [e for e in files("migrator.dashboard").joinpath("static").iterdir() if e.is_file()]
    known = [(each, KINDS[kind]) for each in found if (kind := Path(each.name).suffix) in KINDS]
    return {each.name: _asset(each.read_bytes(), kind) for each, kind in known}


def _asset(data: bytes, kind: str) -> Asset:
    return Asset(data, kind, f'"{hashlib.sha256(data).hexdigest()[:16]}"')


@dataclass(frozen=True)
class Plotly:
    """plotly.js as the installed package has it."""

    data: bytes
    version: str

    @property
    def name(self) -> str:
        """Its name on the server, with the version, so that browsers may cache it for ever."""
        return f"plotly-{self.version}.js"


@cache
def plotly() -> Plotly | None:
    """None if the package is not installed; it is located, not imported."""
    try:
        spec, number = find_spec("plotly"), version("plotly")
    except (PackageNotFoundError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return Plotly(path.read_bytes(), number)
    return None
