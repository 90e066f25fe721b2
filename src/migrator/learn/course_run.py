"""A course as a user asks for it: checked, run with its folder and device, told with provenance."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from migrator.core.errors import InputError
from migrator.learn.benchmarks.benchmark import Origin
from migrator.learn.checkpoint import Warn
from migrator.learn.course import Course, CourseSettings, Progress, fitting, unwatched
from migrator.learn.course_folder import CourseFolder
from migrator.learn.course_result import CourseResult
from migrator.learn.devices import board_of, device_of


@dataclass(frozen=True)
class CourseRun:
    """What to run, and where."""

    settings: CourseSettings
    windows: int | None = None
    """The first so many; None: all."""
    device: str = "auto"
    data: Path | None = None
    checkpoint: Path | None = None
    """A folder to go on from when the run is cut off."""
    resume: bool = False

    def result(self, warn: Warn, progress: Progress = unwatched) -> CourseResult:
        """Run it; what can be refused is refused before data is loaded."""
        if self.resume and self.checkpoint is None:
            raise InputError("--resume: name the run's folder with --checkpoint")
        known = fitting(self.settings.benchmark, self.settings.model)
        known.last_window(self.windows)
        where = device_of(self.device)
        material = known.load(Origin(self.data, self.settings.retraining.seed))
        folder = None if self.checkpoint is None else CourseFolder(self.checkpoint, warn)
        try:
            course = Course(self.settings, material, where, folder, resume=self.resume)
            return course.run(self.windows, progress)
        finally:
            if folder is not None:
                folder.close()

    def answer(self, result: CourseResult) -> dict[str, Any]:
        """The figures as JSON, with everything that running them again needs."""
        settings, where = self.settings, device_of(self.device)
        return {
            "board": board_of(where),
            "device": where,
            "torch": torch.__version__,
            "date": datetime.now(UTC).date().isoformat(),
            "epochs": settings.retraining.epochs,
            "batch": settings.retraining.batch,
            "replay": settings.memory,
            "samples": settings.per_class,
            "pixels": settings.pixels,
            "shuffle": settings.shuffle,
            **asdict(result),
            "rows": [{**asdict(each), "error": each.error} for each in result.rows],
            "median_error": result.median_error,
            "estimation_part": result.estimation_part,
        }
