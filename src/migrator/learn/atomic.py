"""Files that are there whole or not at all, even when the machine stops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from migrator.core.errors import NotWrittenError

_UNFINISHED = ".unfinished"


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file to write to, which becomes `path` at the end; a failure or Ctrl-C removes it.

    Inside another one the file is that one's own: it is written once, and becomes whole there.
    """
    if path.name.endswith(_UNFINISHED):
        with _said_of(path):
            yield path
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}{_UNFINISHED}")
    try:
        with _said_of(path):
            yield unfinished
            _synced(unfinished)
            unfinished.replace(path)
            _synced(path.parent)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed writer left behind; only where nobody is writing."""
    for path in folder.rglob(f".*{_UNFINISHED}"):
        with suppress(OSError):
            path.unlink()


@contextmanager
def _said_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotWrittenError(
            f"{path}: cannot be written ({error.strerror or error}); name another place"
        ) from error


def _synced(path: Path) -> None:
    """What was written there, or a folder's names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
