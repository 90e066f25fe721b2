"""Where a run's figures go: looked at before the work, so that an hour's work is not lost after it.

A plain file is written whole or not at all, also where a link leads to it; what exists and is no
plain file (a pipe, /dev/stdout) is written to as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.learn.atomic import written_whole


class AnswerFile:
    """A place that could be written to when it was named."""

    def __init__(self, path: Path) -> None:
        """InputError where nothing can be written there."""
        self.path = path
        try:
            self._plain = path.is_file() or not path.exists()
            # of a pipe there is no other name: what /dev/stdout links to cannot be opened by it
            self._real = path.resolve() if self._plain else path
        except (OSError, RuntimeError) as error:  # links that lead in a circle
            raise _unwritable(path) from error
        # a plain file is replaced: it is the folder that must be writable
        asked = self._real.parent if self._plain else self._real
        if self._real.is_dir() or not os.access(asked, os.W_OK) or (self._plain and _full(asked)):
            raise _unwritable(path)

    def write(self, answer: Mapping[str, Any]) -> None:
        """The answer as JSON; InputError where it cannot be written any more."""
        text = json.dumps(answer, indent=1, allow_nan=False) + "\n"
        if self._plain:
            with written_whole(self._real) as unfinished:
                unfinished.write_text(text, encoding="utf-8")
            return
        try:
            with self._real.open("w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise InputError(
                f"--out: {self.path} cannot be written ({error.strerror or error}); name a file"
            ) from error


def _full(folder: Path) -> bool:
    """Whether no new file can be made there, whatever its rights say."""
    trial = folder / f".migrator.{os.getpid()}.unfinished"
    try:
        trial.write_bytes(b"{}")
        trial.unlink()
    except OSError:
        return True
    return False


def _unwritable(path: Path) -> InputError:
    return InputError(
        f"--out: {path} cannot be written; name a file in a directory that exists and is yours"
    )
