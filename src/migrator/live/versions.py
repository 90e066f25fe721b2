"""Model versions of a tenant on disk: numbered, with checksums, crash-safe.

A version exists once its JSON file does. That file is written last and contains the checksum of the
weights. Earlier versions are kept for rollbacks.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from migrator.core.errors import InputError, NotWrittenError
from migrator.io.atomic_write import clear_unfinished, sync_to_disk
from migrator.io.weights_folder import DESCRIPTION, DamagedWeightsError, WeightsFolder

KEPT = 3
"""Number of good versions that are kept."""
_WITHDRAWN = ".withdrawn"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Version:
    """A model that was adopted."""

    tenant: str
    number: int
    """Never used twice."""
    weights: Path
    accuracy: float | None
    """Accuracy on held-out samples when it was added; None if unknown."""
    added_s: float
    about: Mapping[str, Any]
    """Details, such as the last window that it has learned."""


class Versions:
    """The versions of one tenant in `folder`/TENANT. The only writers are threads of the daemon."""

    def __init__(self, folder: Path, tenant: str) -> None:
        self.tenant, self.folder = tenant, folder / tenant
        self._weights = WeightsFolder(self.folder, ".safetensors")
        self._changing = Lock()
        """Versions are added and fetched by different threads, and each needs its own number."""

    def newest_good(self) -> Version | None:
        """The newest undamaged version; logs a warning for every damaged one that is skipped."""
        return next(self._good(), None)

    def good(self) -> tuple[Version, ...]:
        return tuple(self._good())

    def add(
        self, weights: Path, accuracy: float | None, about: Mapping[str, Any] | None = None
    ) -> Version:
        """Add a copy of the weights as the newest version; after an InputError nothing was
        added."""
        if not weights.is_file():
            raise InputError(f"{weights}: there are no weights of {self.tenant}; retrain again")
        with self._changing:
            added = self._write(self.highest + 1, weights, accuracy, about or {})
            self._drop_old()
        return added

    def note(self, number: int, about: Mapping[str, Any]) -> None:
        """Replace the details of that version, if it is still here and undamaged."""
        with self._changing, self._writing(), contextlib.suppress(DamagedWeightsError):
            self._weights.describe(number, {"about": dict(about)})

    def restore(
        self, number: int, weights: Path, accuracy: float | None, about: Mapping[str, Any]
    ) -> Version:
        """Add a version from another machine under the number it has there."""
        with self._changing:
            return self._write(number, weights, accuracy, about)

    def whole(self, number: int) -> Version | None:
        """That version, if it exists here and is undamaged; otherwise None."""
        try:
            return self._version(number, self._weights.read(number))
        except DamagedWeightsError:
            return None

    def withdrawn(self, number: int) -> bool:
        return self._weights.path(number, _WITHDRAWN).exists()

    @property
    def highest(self) -> int:
        """The highest number ever used; 0 if there is none."""
        return max(self._weights.numbers(""), default=0)

    def withdraw_up_to(self, highest: int, kept: Collection[int]) -> None:
        """Withdraw all versions up to `highest` except `kept`. Numbers up to it are not used
        again."""
        with self._changing, self._writing():
            self._weights.create()
            for number in self._weights.numbers():
                if number <= highest and number not in kept:
                    self._withdraw(number)
            if self.highest < highest:
                self._weights.path(highest, _WITHDRAWN).touch()
            sync_to_disk(self.folder)

    def earlier(self, number: int) -> tuple[int, ...]:
        """Versions before that one, newest first, without a check for damage."""
        return tuple(sorted((n for n in self._weights.numbers() if n < number), reverse=True))

    def roll_back(self, serving: int) -> Version:
        """Withdraw the serving version and all after it. Returns the last good version before it,
        which then serves."""
        before = next((version for version in self._good() if version.number < serving), None)
        if before is None:
            raise InputError(
                f"{self.tenant}: there is no earlier version to go back to; retrain the model or "
                "give other weights"
            )
        with self._changing, self._writing():
            for version_number in reversed(self._weights.numbers()):
                if version_number >= serving:
                    self._withdraw(version_number)
            sync_to_disk(self.folder)
        return before

    def _write(
        self, number: int, weights: Path, accuracy: float | None, about: Mapping[str, Any]
    ) -> Version:
        clear_unfinished(self.folder)
        fields = {"accuracy": accuracy, "added_s": time.time(), "about": dict(about)}
        self._weights.write(number, partial(shutil.copyfile, weights), fields)
        return self._version(number, self._weights.read(number))

    def _good(self) -> Iterator[Version]:
        for number, entry in self._weights.readable(self._pass_over):
            yield self._version(number, entry)

    def _pass_over(self, number: int) -> None:
        _log.warning(
            "%s: this version of %s's model is damaged; the one before it is taken",
            self._weights.path(number, DESCRIPTION),
            self.tenant,
        )

    def _version(self, number: int, entry: Mapping[str, Any]) -> Version:
        return Version(
            self.tenant,
            number,
            self._weights.path(number),
            entry["accuracy"],
            float(entry["added_s"]),
            entry["about"],
        )

    def _withdraw(self, number: int) -> None:
        about = self._weights.path(number, DESCRIPTION)
        about.replace(about.with_suffix(_WITHDRAWN))

    def _drop_old(self) -> None:
        """Remove all versions older than the last good ones, including damaged and withdrawn
        ones."""
        kept = [version.number for version in self.good()[:KEPT]]
        for number in self._weights.numbers(""):
            if number < min(kept, default=0):
                self._weights.remove(number)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise NotWrittenError(
                f"{self.folder}: model versions cannot be kept there ({error.strerror or error}); "
                "make room or rights, or name another folder"
            ) from error
