"""A tenant's model versions on disk: numbered, checked, the last good one found after a crash.

A version counts only once its JSON is there, which is written last and carries the checksum of
the weights. The one before stays, so that there is something to go back to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from migrator.core.errors import InputError, NotWrittenError
from migrator.learn.atomic import written_whole

KEPT = 3
"""Good versions that stay."""
_WEIGHTS, _ABOUT, _WITHDRAWN = ".safetensors", ".json", ".withdrawn"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Version:
    """A model that was adopted."""

    tenant: str
    number: int
    """Never given twice."""
    weights: Path
    accuracy: float | None
    """On held-out samples when it was added; None: nobody knew."""
    added_s: float
    about: Mapping[str, Any]
    """What whoever added it wanted to remember."""


class Versions:
    """The versions of one tenant in `folder`/TENANT; there is one writer, the daemon's threads."""

    def __init__(
        self,
        folder: Path,
        tenant: str,
        *,
        kept: int = KEPT,
        warn: Callable[[str], None] = _log.warning,
    ) -> None:
        self.tenant, self.folder = tenant, folder / tenant
        self._kept, self._warn = max(2, kept), warn
        self._changing = Lock()
        """One is added while another is brought: else both might get one number."""

    def newest_good(self) -> Version | None:
        """The newest version that is whole; a warning for every damaged one passed over."""
        return next(self._good(), None)

    def good(self) -> tuple[Version, ...]:
        """Every version that is whole, newest first."""
        return tuple(self._good())

    def add(
        self,
        weights: Path,
        accuracy: float | None,
        about: Mapping[str, Any] | None = None,
        *,
        least: int = 1,
    ) -> Version:
        """Take over a copy of the weights as the newest version, or nothing at all (InputError).

        `least`: its number where the tenant has lived elsewhere before.
        """
        if not weights.is_file():
            raise InputError(f"{weights}: there are no weights of {self.tenant}; retrain again")
        with self._changing:
            added = self._added(max(self.highest + 1, least), weights, accuracy, about or {})
            self._drop_old()
        return added

    def restore(
        self, number: int, weights: Path, accuracy: float | None, about: Mapping[str, Any]
    ) -> Version:
        """One that was added where the tenant lived before, under the number it has there."""
        with self._changing:
            return self._added(number, weights, accuracy, about)

    def whole(self, number: int) -> Version | None:
        """That version, if it is here and undamaged."""
        try:
            return self._read(number)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def withdrawn(self, number: int) -> bool:
        """Whether somebody went back from that version."""
        return self._path(number, _WITHDRAWN).exists()

    @property
    def highest(self) -> int:
        """The highest number that was ever given; 0: none was."""
        return max(self._numbers(), default=0)

    def withdraw_up_to(self, highest: int, kept: Collection[int]) -> None:
        """Withdraw all others up to that number, which is not given again either."""
        with self._changing, self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            for each in self._numbers(_ABOUT):
                if each <= highest and each not in kept:
                    about = self._path(each, _ABOUT)
                    about.replace(about.with_suffix(_WITHDRAWN))
            if self.highest < highest:
                self._path(highest, _WITHDRAWN).touch()
            self._sync()

    def _added(
        self, number: int, weights: Path, accuracy: float | None, about: Mapping[str, Any]
    ) -> Version:
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clear_unfinished()
        with written_whole(self._path(number, _WEIGHTS)) as unfinished:
            shutil.copyfile(weights, unfinished)
            checksum = _sha256(unfinished)
        entry = {
            "number": number,
            "weights_sha256": checksum,
            "accuracy": accuracy,
            "added_s": time.time(),
            "about": dict(about),
        }
        self._write(number, json.dumps(entry, allow_nan=False))
        return self._read(number)

    def earlier(self, number: int) -> tuple[int, ...]:
        """Versions before that one, newest first; whether they are whole is not looked at."""
        return tuple(sorted((n for n in self._numbers(_ABOUT) if n < number), reverse=True))

    def roll_back(self, serving: int | None = None) -> Version:
        """Withdraw the version that serves, by default the newest good one, and all after it.

        The last good one before it serves from now on.
        """
        good = self.good()
        number = serving if serving is not None else max((each.number for each in good), default=0)
        before = next((each for each in good if each.number < number), None)
        if before is None:
            raise InputError(
                f"{self.tenant}: there is no earlier version to go back to; retrain the model or "
                "give other weights"
            )
        with self._changing, self._writing():
            for each in sorted(self._numbers(_ABOUT), reverse=True):
                if each >= number:
                    about = self._path(each, _ABOUT)
                    about.replace(about.with_suffix(_WITHDRAWN))
            self._sync()
        return before

    def _write(self, number: int, body: str) -> None:
        try:
            with written_whole(self._path(number, _ABOUT)) as unfinished:
                unfinished.write_text(f"{_checksum(body)}\n{body}\n", encoding="utf-8")
        except BaseException:
            with contextlib.suppress(OSError):
                self._path(number, _WEIGHTS).unlink()
            raise
        with self._writing():
            self._sync()

    def _good(self) -> Iterator[Version]:
        for number in sorted(self._numbers(_ABOUT), reverse=True):
            try:
                yield self._read(number)
            except (OSError, ValueError, KeyError, TypeError):
                self._warn(
                    f"{self._path(number, _ABOUT)}: this version of {self.tenant}'s model is "
                    "damaged; the one before it is taken"
                )

    def _read(self, number: int) -> Version:
        checksum, _, body = self._path(number, _ABOUT).read_text(encoding="utf-8").partition("\n")
        body = body.removesuffix("\n")
        if _checksum(body) != checksum:
            raise ValueError("checksum")
        entry = json.loads(body)
        weights = self._path(number, _WEIGHTS)
        if entry["number"] != number or _sha256(weights) != entry["weights_sha256"]:
            raise ValueError("weights")
        accuracy, added_s = entry["accuracy"], float(entry["added_s"])
        return Version(self.tenant, number, weights, accuracy, added_s, entry["about"])

    def _drop_old(self) -> None:
        """All that is older than the last good ones, damaged and withdrawn ones too."""
        kept = [each.number for each in self.good()[: self._kept]]
        for path in self.folder.iterdir():
            if path.stem.isdecimal() and int(path.stem) < min(kept, default=0):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _clear_unfinished(self) -> None:
        """What a killed writer left behind."""
        for path in self.folder.glob(".*.unfinished"):
            path.unlink(missing_ok=True)

    def _numbers(self, suffix: str = "") -> set[int]:
        stems = {each.stem for each in self.folder.glob(f"*{suffix}")}
        return {int(each) for each in stems if each.isdecimal()}

    def _path(self, number: int, suffix: str) -> Path:
        return self.folder / f"{number:06d}{suffix}"

    def _sync(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise NotWrittenError(
                f"{self.folder}: model versions cannot be kept there ({error.strerror or error}); "
                "make room or rights, or name another folder"
            ) from error


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
