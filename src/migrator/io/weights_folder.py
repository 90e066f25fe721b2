"""Numbered weights of models on disk, with descriptions and checksums.

Uses only the standard library, because it also runs on hosts that have nothing but torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from migrator.core.errors import NotWrittenError
from migrator.io.atomic_write import write_atomically

DESCRIPTION = ".json"
NOTE = "migrator"
"""Key of MIGRator's note in the metadata of a safetensors file."""
_LONGEST_HEADER = 100_000_000
_NUMBER = re.compile("[0-9]{6,9}")
"""Numbers as MIGRator writes them. Other files may have any name."""


class DamagedWeightsError(ValueError):
    """The weights with a number are missing, incomplete or changed."""


class WeightsFolder:
    """Weights under NUMBER`suffix` and their descriptions under NUMBER.json.

    Weights count only if their description exists. It is written last and contains their checksum,
    which detects incomplete or changed weights.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder, self._suffix = folder, suffix

    def write(self, number: int, save: Callable[[Path], object], about: Mapping[str, Any]) -> None:
        """Add the weights that `save` writes, with a description; or nothing if that fails."""
        self.create()
        weights = self.path(number)
        with write_atomically(weights) as draft:
            save(draft)
            checksum = sha256_of(draft)
        try:
            self._describe({"number": number, "weights_sha256": checksum, **about})
        except BaseException:
            with suppress(OSError):
                weights.unlink()
            raise

    def describe(self, number: int, changes: Mapping[str, Any]) -> None:
        """Change keys of the description of intact weights. Raises DamagedWeightsError."""
        self._describe({**self.read(number), **changes})

    def _describe(self, about: Mapping[str, Any]) -> None:
        body = json.dumps(about, allow_nan=False)
        with write_atomically(self.path(about["number"], DESCRIPTION)) as draft:
            draft.write_text(f"{_checksum(body)}\n{body}\n", encoding="utf-8")

    def read(self, number: int) -> dict[str, Any]:
        """The description of intact weights. Raises DamagedWeightsError."""
        try:
            text = self.path(number, DESCRIPTION).read_text(encoding="utf-8")
            checksum, _, body = text.partition("\n")
            body = body.removesuffix("\n")
            if _checksum(body) != checksum:
                raise ValueError("the description has another checksum")
            about: dict[str, Any] = {**json.loads(body)}
            if about["number"] != number or sha256_of(self.path(number)) != about["weights_sha256"]:
                raise ValueError("the weights have another checksum")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedWeightsError(str(error)) from error
        return about

    def readable(self, warn: Callable[[int], object]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Number and description of intact weights, newest first; `warn` gets the others."""
        for number in reversed(self.numbers()):
            try:
                yield number, self.read(number)
            except DamagedWeightsError:
                warn(number)

    def numbers(self, suffix: str = DESCRIPTION) -> list[int]:
        """The numbers of all files with this suffix, ascending, intact or not."""
        names = {path.stem for path in self.folder.glob(f"*{suffix}")}
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def remove(self, number: int) -> None:
        """Delete all files with a number. A file that cannot be deleted does no harm."""
        # Descriptions first, because weights without one do not count.
        for path in sorted(
            self.folder.glob(f"{number:06d}.*"), key=lambda p: p.suffix != DESCRIPTION
        ):
            with suppress(OSError):
                path.unlink()

    def path(self, number: int, suffix: str | None = None) -> Path:
        """The path of the weights with a number, or of its file with `suffix`."""
        return self.folder / f"{number:06d}{self._suffix if suffix is None else suffix}"

    def create(self) -> None:
        """Create the folder. Raises NotWrittenError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotWrittenError(
                f"{self.folder}: weights cannot be kept there ({error.strerror or error}); make "
                "room, change permissions, or name another folder"
            ) from error


UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a damaged or other file may raise."""


def knows_classes(path: Path) -> bool:
    """Whether weights were trained on classes, as those count that MIGRator did not write."""
    try:
        _, header = safetensors_header(path)
        note = json.loads(header["__metadata__"][NOTE])
        return bool(note["seen"])
    except UNREADABLE:
        return True  # loading them reports what is wrong


def safetensors_header(path: Path) -> tuple[int, dict[str, Any]]:
    """The header of a safetensors file, and where its tensors begin."""
    with path.open("rb") as file:
        length = min(int.from_bytes(file.read(8), "little"), _LONGEST_HEADER)
        return 8 + length, json.loads(file.read(length))


def sha256_of(path: Path) -> str:
    """The checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
