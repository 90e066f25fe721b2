"""Checkpoints: written whole, with a checksum; the last two are kept, the last good one is used."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.learn.atomic import written_whole
from migrator.learn.model import Model

KEPT = 2
_WEIGHTS, _ABOUT = ".weights", ".json"
_NUMBER = re.compile("[0-9]{6,9}")
"""As we write them; a stray file may be called anything."""

Warn = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A point from which a training can go on."""

    number: int
    weights: Path
    about: dict[str, Any]
    """What the writer wanted to remember."""


class Checkpoints:
    """A folder of numbered checkpoints. One counts only once its JSON is there: that comes last."""

    def __init__(self, folder: Path, warn: Warn) -> None:
        self.folder, self.warn = folder, warn
        self._told: set[int] = set()

    def write(
        self, number: int, model: Model, about: dict[str, Any], *, training: bool = True
    ) -> None:
        """Add a checkpoint and drop all but the last ones; `training`: amid a training."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self.folder}: cannot be created ({error.strerror or error}); "
                "name another folder for checkpoints"
            ) from error
        weights = self._path(number, _WEIGHTS)
        with written_whole(weights) as unfinished:
            model.save(unfinished, training=training)
            checksum = sha256_of(unfinished)
        self._told.discard(number)
        entry = {"number": number, "weights_sha256": checksum, "about": about}
        body = json.dumps(entry, allow_nan=False)
        with written_whole(self._path(number, _ABOUT)) as unfinished:
            unfinished.write_text(f"{_checksum(body)}\n{body}\n", encoding="utf-8")
        for old in self._numbers()[:-KEPT]:
            for suffix in (_ABOUT, _WEIGHTS):
                with suppress(OSError):  # what cannot be removed does no harm
                    self._path(old, suffix).unlink()

    def newest_good(self) -> Checkpoint | None:
        """The newest one that is whole; a warning for every damaged one passed over."""
        return next(self._good(), None)

    def any(self) -> bool:
        """Whether there is one, good or not."""
        return bool(self._numbers())

    def clear(self) -> None:
        """Remove the folder: what it led to has been kept elsewhere."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _good(self) -> Iterator[Checkpoint]:
        numbers = self._numbers()
        for number in reversed(numbers):
            try:
                yield self._read(number)
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                self._passed_over(number, numbers[0])

    def _passed_over(self, number: int, oldest: int) -> None:
        """Said once, however often it is looked for."""
        if number not in self._told:
            self._told.add(number)
            self.warn(
                f"{self._path(number, _ABOUT)}: this checkpoint is damaged; "
                + ("there is none before it" if number == oldest else "trying the one before it")
            )

    def _read(self, number: int) -> Checkpoint:
        checksum, _, body = self._path(number, _ABOUT).read_text(encoding="utf-8").partition("\n")
        body = body.removesuffix("\n")
        if _checksum(body) != checksum:
            raise ValueError("checksum")
        entry = json.loads(body)
        weights = self._path(number, _WEIGHTS)
        if entry["number"] != number or sha256_of(weights) != entry["weights_sha256"]:
            raise ValueError("weights")
        about: dict[str, Any] = {**entry["about"]}
        return Checkpoint(number, weights, about)

    def _numbers(self) -> list[int]:
        names = [each.stem for each in self.folder.glob(f"*{_ABOUT}")]
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def _path(self, number: int, suffix: str) -> Path:
        return self.folder / f"{number:06d}{suffix}"


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_of(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
