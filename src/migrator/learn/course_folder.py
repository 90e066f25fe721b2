"""The folder a course is resumed from: `course/` holds the serving model after every scenario,
`window-N/` the epochs of the one under way, `settings.json` which course it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.learn.atomic import written_whole
from migrator.learn.checkpoint import Checkpoint, Checkpoints, Warn
from migrator.learn.model import Model


class CourseFolder:
    """Where one course keeps what it needs to go on."""

    def __init__(self, folder: Path, warn: Warn) -> None:
        self.folder, self.warn = folder, warn
        self.course = Checkpoints(folder / "course", warn)

    def begin(self, identity: Mapping[str, Any], *, resume: bool) -> Checkpoint | None:
        """The last good point of the same course; None at its beginning."""
        note = self.folder / "settings.json"
        if note.exists() and not resume:
            raise InputError(
                f"--checkpoint: {self.folder} holds a run already; add --resume or name another "
                "folder"
            )
        if resume and not note.exists():
            raise InputError(f"--resume: {self.folder} holds no run; leave --resume out")
        mine = json.dumps(identity, sort_keys=True, indent=1)
        if resume and note.read_text(encoding="utf-8") != mine:
            raise InputError(
                f"--resume: {self.folder} is of a run with other settings, listed in {note.name}; "
                "give those or name another folder"
            )
        if not resume:
            self._note(note, mine)
        found = self.course.newest_good()
        if found is None and self.course.any():
            raise InputError(
                f"{self.folder}: none of its checkpoints is whole; remove it and begin again"
            )
        return found

    def epochs(self, scenario: int) -> Checkpoints:
        """Of the retraining for a scenario."""
        return Checkpoints(self.folder / f"window-{scenario}", self.warn)

    def finished(self, scenario: int, model: Model, about: dict[str, Any]) -> None:
        """Keep the model that serves from now on; the epochs that led to it are not needed."""
        self.course.write(scenario, model, about, training=False)
        self.epochs(scenario).clear()

    def _note(self, note: Path, text: str) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"--checkpoint: {self.folder} cannot be created ({error.strerror or error}); "
                "name another folder"
            ) from error
        with written_whole(note) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
