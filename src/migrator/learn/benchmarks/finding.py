"""Where a benchmark's files are: in a folder given, or where MIGRATOR_DATA points."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from migrator.core.errors import InputError

VARIABLE = "MIGRATOR_DATA"
"""Names a folder that holds the files itself or in a subfolder `sets`."""


def found(names: Iterable[str], data: Path | None) -> Path | None:
    """The first of these files or folders that exists."""
    named = os.environ.get(VARIABLE)
    folder = data or (Path(named) if named else None)
    if folder is None:
        return None
    places = [place / name for name in names for place in (folder, folder / "sets")]
    return next((each for each in places if each.exists()), None)


def missing(benchmark: str, what: str, data: Path | None) -> InputError:
    """What to get and where to put it."""
    if data is not None:
        where = f"under {data}"
    else:
        where = f"where {VARIABLE} points" if os.environ.get(VARIABLE) else "known"
    return InputError(
        f"{benchmark}: its data is not {where}; get {what}, put it into a folder and name that "
        f"with --data or {VARIABLE} (docs/learning.md), or use nc-synthetic"
    )


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Whatever reading a file that should be `what` ends in, as one sentence."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except PermissionError as error:
        raise InputError(f"{path}: may not be read; give yourself the right to") from error
    except Exception as error:
        # archives, pickles, arrays and pictures have dozens of ways to be something else
        raise damaged(path, what) from error


def damaged(path: Path, what: str) -> InputError:
    """One sentence for a file that is not what it should be."""
    return InputError(f"{path}: is no {what}, or it is damaged; get it again")
