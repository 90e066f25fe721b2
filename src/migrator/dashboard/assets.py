"""The packaged files of the page, and plotly.js as the installed package has it."""

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


@dataclass(frozen=True)
class _Asset:
    data: bytes
    kind: str
    etag: str


@cache
def packaged_assets() -> Mapping[str, _Asset]:
    """All files by name, read once: the name in a request is never used as a path."""
    assets = {}
    for file in files("migrator.dashboard").joinpath("static").iterdir():
        if kind := KINDS.get(Path(file.name).suffix):
            data = file.read_bytes()
            etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
            assets[file.name] = _Asset(data, kind, etag)
    return assets


@dataclass(frozen=True)
class _PlotlyFile:
    data: bytes
    version: str

    @property
    def name(self) -> str:
        """Its name on the server, with the version, so that browsers may cache it for ever."""
        return f"plotly-{self.version}.js"


@cache
def plotly_file() -> _PlotlyFile | None:
    """None if the package is not installed; it is located, not imported."""
    try:
        spec, number = find_spec("plotly"), version("plotly")
    except (PackageNotFoundError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return _PlotlyFile(path.read_bytes(), number)
    return None
