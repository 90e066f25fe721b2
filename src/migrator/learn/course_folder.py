"""The folder that a course is resumed from.

`course/` holds the serving model after every scenario, `window-N/` the epochs of the scenario in
progress, `settings.json` the settings, data and weights of the course.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.io.atomic import clear_unfinished, write_atomically
from migrator.io.lock import FolderLock
from migrator.learn.checkpoint import Checkpoint, Checkpoints, Warn
from migrator.learn.model import Model

_SETTINGS, _COURSE, _WINDOW = "settings.json", "course", "window-"


class CourseFolder:
    """Checkpoints of one course; locked while the course runs."""

    def __init__(self, folder: Path, warn: Warn) -> None:
        self.folder, self.warn = folder, warn
        self.course = Checkpoints(folder / _COURSE, warn)
        self._claim: FolderLock | None = None

    def begin(self, identity: Mapping[str, Any], *, resume: bool) -> Checkpoint | None:
        """Lock the folder. With `resume`, the last good checkpoint of this very course.

        None at the beginning of a course. InputError if the folder belongs to another one.
        """
        if resume and not (self.folder / _SETTINGS).exists():
            raise InputError(f"--resume: {self.folder} holds no run; leave --resume out")
        self._claim = self._claim or FolderLock(self.folder)
        clear_unfinished(self.folder)
        settings = json.dumps(identity, sort_keys=True, indent=1)
        if not resume:
            self._require_empty()
            with write_atomically(self.folder / _SETTINGS) as unfinished:
                unfinished.write_text(settings, encoding="utf-8")
            return None
        self._require_same(settings)
        found = self.course.newest_good()
        if found is None and self.course.has_any():
            raise InputError(
                f"{self.folder}: all its checkpoints are damaged; delete it and start again"
            )
        return found

    def epochs(self, scenario: int) -> Checkpoints:
        """The checkpoints of one scenario's retraining."""
        return Checkpoints(self.folder / f"{_WINDOW}{scenario}", self.warn)

    def finish(self, scenario: int, model: Model, about: dict[str, Any]) -> None:
        """Save the model that serves after a scenario; delete the scenario's epochs."""
        self.course.write(scenario, model, about, training=False)
        self.epochs(scenario).clear()

    def close(self) -> None:
        """Unlock the folder."""
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def _require_empty(self) -> None:
        """A new course must not resume from another course's checkpoints."""
        if (self.folder / _SETTINGS).exists():
            raise InputError(
                f"--checkpoint: {self.folder} holds a run already; add --resume or name another "
                "folder"
            )
        left = [*self.folder.glob(_COURSE), *self.folder.glob(f"{_WINDOW}*")]
        if left:
            raise InputError(
                f"--checkpoint: {self.folder} holds {left[0].name} of an unknown run; remove that "
                "or name another folder"
            )

    def _require_same(self, settings: str) -> None:
        path = self.folder / _SETTINGS
        try:
            saved = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"--resume: {path} cannot be read or is damaged; delete the folder and start again"
            ) from error
        if saved != settings:
            raise InputError(
                f"--resume: {self.folder} is of a run with other settings, data or weights, listed "
                f"in {_SETTINGS}; use those or name another folder"
            )
