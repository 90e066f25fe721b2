"""Where a figure or page goes: asked before the work, then written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from migrator.core.errors import InputError

_LIBRARIES = {".html": "plotly", ".png": "matplotlib"}


def check_path(path: Path, suffixes: Iterable[str], option: str) -> None:
    """InputError where `path` cannot be written or drawn; `option` is what the user typed."""
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


@contextmanager
def written_whole(path: Path, option: str) -> Iterator[Path]:
    """A file to write to, which becomes `path` at the end; a failure or Ctrl-C removes it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        raise InputError(
            f"{option}: cannot write {path} ({error.strerror or error}); name another file"
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def drawing_module(name: str, option: str) -> ModuleType:
    """A module that draws, loaded only now; InputError says how to get what it needs."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise _missing(error.name, option) from error


def _missing(library: str | None, option: str) -> InputError:
    return InputError(
        f"{option} needs {library}, which is not installed: pip install 'migrator[figures]'"
    )
