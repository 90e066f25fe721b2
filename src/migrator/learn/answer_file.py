"""The file of `retrain --out`, checked before the run so that its results are not lost afterwards.

A regular file (also behind a link) is replaced atomically. Anything else that exists, such as a
pipe or /dev/stdout, is written to directly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.io.atomic import write_atomically


class AnswerFile:
    """An output path that was writable when it was checked."""

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
