"""Where a benchmark's files are: in a folder given, or where MIGRATOR_DATA points."""

from __future__ import annotations

import os
from collections.abc import Iterable
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
    where = f"under {data}" if data else f"where {VARIABLE} points" * bool(os.environ.get(VARIABLE))
    return InputError(
        f"{benchmark}: its data is not {where or 'known'}; get {what}, put it into a folder and "
        f"name that with --data or {VARIABLE} (docs/learning.md), or use nc-synthetic"
    )


def damaged(path: Path, what: str) -> InputError:
    """One sentence for a file that is not what it should be."""
    return InputError(f"{path}: is no {what}, or it is damaged; get it again")
