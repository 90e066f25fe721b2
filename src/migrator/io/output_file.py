"""Output files that a user names: checked before the work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from migrator.core.errors import InputError

_LIBRARIES = {".html": "plotly", ".png": "matplotlib"}


def check_path(path: Path, suffixes: Iterable[str], option: str) -> None:
    """Raise InputError, which names `option`, if `path` cannot be written or drawn."""
    suffixes = tuple(suffixes)
    if path.suffix.lower() not in suffixes:
        name = path.name or str(path)
        raise InputError(f"{option}: {name!r} must end in {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise InputError(f"{option}: {path.parent} is not a directory; create it first")
    if path.is_dir():
        raise InputError(f"{option}: cannot write {path} (it is a directory); name another file")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option}: cannot write into {path.parent}; name another directory")
    library = _LIBRARIES.get(path.suffix.lower())
    if library is not None and find_spec(library) is None:
        raise _missing(library, option)


def drawing_module(name: str, option: str) -> ModuleType:
    """A module that draws, imported on first use; InputError if it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise _missing(error.name, option) from error


def _missing(library: str | None, option: str) -> InputError:
    return InputError(
        f"{option} needs {library}, which is not installed: pip install 'migrator-gpu[figures]'"
    )
