"""Files that are there whole or not at all, even when the machine stops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from migrator.core.errors import InputError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file to write to, which becomes `path` at the end; a failure or Ctrl-C removes it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); name another place"
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
