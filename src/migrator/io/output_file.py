"""Output files that a user names: checked before the work, written after it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from migrator.core.errors import InputError
from migrator.io.atomic_write import write_atomically

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


class AnswerFile:
    """An output path for JSON that was writable when it was checked.

    A regular file (also behind a link) is replaced atomically. Anything else that exists, such as a
    pipe or /dev/stdout, is written to directly.
    """

    def __init__(self, path: Path) -> None:
        """InputError if nothing can be written there."""
        self.path = path
        try:
            self._plain = path.is_file() or not path.exists()
            # not for pipes: the target of /dev/stdout cannot be opened by its own name
            self._real = path.resolve() if self._plain else path
            if self._plain:  # it is replaced by a new file in the same folder
                trial = self._real.parent / f".migrator.{os.getpid()}.unfinished"
                trial.write_bytes(b"{}")
                trial.unlink()
            elif path.is_dir() or not os.access(path, os.W_OK):
                raise PermissionError(path)
        except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
            raise InputError(
                f"--out: {path} cannot be written; name a file in an existing directory that you "
                "may write"
            ) from error

    def write(self, answer: Mapping[str, Any]) -> None:
        """Write the answer as JSON; InputError if that fails now."""
        text = json.dumps(answer, indent=1, allow_nan=False) + "\n"
        if self._plain:
            with write_atomically(self._real) as unfinished:
                unfinished.write_text(text, encoding="utf-8")
            return
        try:
            with self._real.open("w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise InputError(
                f"--out: {self.path} cannot be written ({error.strerror or error}); name a file"
            ) from error
