"""Writing files such that a crash leaves the old content or the new one.

Uses only the standard library, because it also runs on hosts that have nothing but torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from migrator.core.errors import NotWrittenError

UNFINISHED = ".unfinished"
"""Suffix of the name of a file that is being written."""


@contextmanager
def replace_file(path: Path, *, tag: str | None = None, sync: bool = True) -> Iterator[Path]:
    """Yield a draft to write to, which replaces `path` at the end. Remove it if anything fails.

    `tag` makes its name unique among concurrent writers (default: the process id). With `sync` the
    new content survives a power failure. Raises OSError unchanged.
    """
    draft = path.with_name(f".{path.name}.{os.getpid() if tag is None else tag}{UNFINISHED}")
    try:
        yield draft
        if sync:
            sync_to_disk(draft)
        draft.replace(path)
        if sync:
            sync_to_disk(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def write_atomically(path: Path, *, option: str | None = None) -> Iterator[Path]:
    """Like `replace_file`, but raises NotWrittenError.

    `option` is the command line option for `path`.

    Nested calls write one file: given the draft of an outer call, the inner one yields it
    unchanged.
    """
    try:
        if path.name.endswith(UNFINISHED):
            yield path
        else:
            with replace_file(path) as draft:
                yield draft
    except OSError as error:
        reason = error.strerror or error
        if option is not None:
            raise NotWrittenError(
                f"{option}: cannot write {path} ({reason}); name another file"
            ) from error
        raise NotWrittenError(
            f"{path}: cannot be written ({reason}); name another place"
        ) from error


def clear_unfinished(folder: Path) -> None:
    """Remove the drafts of killed writers. Call only while no process writes in `folder`."""
    for path in folder.rglob(f".*{UNFINISHED}"):
        with suppress(OSError):
            path.unlink()


def sync_to_disk(path: Path) -> None:
    """Flush a file's content, or the names in a folder, so that they survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
