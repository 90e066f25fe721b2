"""The folder a course is resumed from: `course/` holds the serving model after every scenario,
`window-N/` the epochs of the one under way, `settings.json` which course it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.learn.atomic import clear_unfinished, written_whole
from migrator.learn.checkpoint import Checkpoint, Checkpoints, Warn
from migrator.learn.claim import Claim
from migrator.learn.model import Model

_NOTE, _COURSE, _WINDOW = "settings.json", "course", "window-"


class CourseFolder:
    """Where one course keeps what it needs to go on; nobody else may use it meanwhile."""

    def __init__(self, folder: Path, warn: Warn) -> None:
        self.folder, self.warn = folder, warn
        self.course = Checkpoints(folder / _COURSE, warn)
        self._claim: Claim | None = None

    def begin(self, identity: Mapping[str, Any], *, resume: bool) -> Checkpoint | None:
        """The last good point of the same course; None at its beginning."""
        if resume and not (self.folder / _NOTE).exists():
            raise InputError(f"--resume: {self.folder} holds no run; leave --resume out")
        self._claim = self._claim or Claim(self.folder)
        clear_unfinished(self.folder)
        mine = json.dumps(identity, sort_keys=True, indent=1)
        if not resume:
            self._require_empty()
            with written_whole(self.folder / _NOTE) as unfinished:
                unfinished.write_text(mine, encoding="utf-8")
            return None
        self._require_same(mine)
        found = self.course.newest_good()
        if found is None and self.course.any():
            raise InputError(
                f"{self.folder}: none of its checkpoints is whole; remove it and begin again"
            )
        return found

    def epochs(self, scenario: int) -> Checkpoints:
        """Of the retraining for a scenario."""
        return Checkpoints(self.folder / f"{_WINDOW}{scenario}", self.warn)

    def finished(self, scenario: int, model: Model, about: dict[str, Any]) -> None:
        """Keep the model that serves from now on; the epochs that led to it are not needed."""
        self.course.write(scenario, model, about, training=False)
        self.epochs(scenario).clear()

    def close(self) -> None:
        """Let others use the folder."""
        if self._claim is not None:
            self._claim.let_go()
            self._claim = None

    def _require_empty(self) -> None:
        """A new course must not go on from another one's checkpoints."""
        if (self.folder / _NOTE).exists():
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

    def _require_same(self, mine: str) -> None:
        note = self.folder / _NOTE
        try:
            kept = note.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"--resume: {note} cannot be read or is damaged; remove the folder and begin again"
            ) from error
        if kept != mine:
            raise InputError(
                f"--resume: {self.folder} is of a run with other settings, data or weights, listed "
                f"in {_NOTE}; give those or name another folder"
            )
