"""Checkpoints of a training: when they are written, and which one a resumed training starts from.

Each is written atomically with a checksum. The last two are kept; the newest undamaged one is
used. A checkpoint saves the time since the previous one if the process dies. Small checkpoints are
written after every epoch, large ones (seconds each) rarely enough to cost at most `TIME_SHARE` of
the training.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from migrator.io.weights_folder import WeightsFolder
from migrator.learn.model import Model

KEPT = 2
TIME_SHARE = 0.05
"""The part of the training's time that slower checkpoints may take."""
FREE_S = 0.2
"""Checkpoints that take no longer than this are written after every epoch."""
_BYTES_PER_S = 300e6
"""Assumed write speed until the first checkpoint has been timed."""

Warn = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A saved state from which a training can resume."""

    number: int
    weights: Path
    about: dict[str, Any]
    """What the writer wanted to remember."""


class Checkpoints:
    """A folder of numbered checkpoints."""

    def __init__(self, folder: Path, warn: Warn) -> None:
        self.folder, self.warn = folder, warn
        self._weights = WeightsFolder(folder, ".weights")
        self._reported: set[int] = set()

    def write(
        self, number: int, model: Model, about: dict[str, Any], *, training: bool = True
    ) -> None:
        """Add a checkpoint and drop all but the last ones; `training`: amid a training."""
        self._weights.write(number, partial(model.save, training=training), {"about": about})
        self._reported.discard(number)
        for old in self._weights.numbers()[:-KEPT]:
            self._weights.remove(old)

    def newest_good(self) -> Checkpoint | None:
        """The newest one that is whole; a warning for every damaged one passed over."""
        return next(self._good(), None)

    def has_any(self) -> bool:
        """Whether there is one, good or not."""
        return bool(self._weights.numbers())

    def clear(self) -> None:
        """Remove the folder: what it led to has been kept elsewhere."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _good(self) -> Iterator[Checkpoint]:
        for number, entry in self._weights.readable(self._pass_over):
            yield Checkpoint(number, self._weights.path(number), entry["about"])

    def _pass_over(self, number: int) -> None:
        """Warn once, however often checkpoints are looked for."""
        if number not in self._reported:
            self._reported.add(number)
            oldest = number == self._weights.numbers()[0]
            self.warn(
                f"{self._weights.path(number, '.json')}: this checkpoint is damaged; "
                + ("there is none before it" if oldest else "trying the one before it")
            )


class CheckpointSchedule:
    """Decides when the next checkpoint is due."""

    def __init__(self, size_bytes: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`size_bytes`: approximate size of a checkpoint; 0 if unknown until the first one."""
        self._clock = clock
        self._cost_s, self._last_s = size_bytes / _BYTES_PER_S, clock()

    @property
    def due(self) -> bool:
        """Whether a checkpoint should be written now."""
        elapsed_s = self._clock() - self._last_s
        return self._cost_s <= FREE_S or elapsed_s * TIME_SHARE >= self._cost_s

    def record_write(self, began_s: float) -> None:
        """Note that a checkpoint, begun at `began_s`, has just been written."""
        self._last_s = self._clock()
        self._cost_s = self._last_s - began_s

    def now_s(self) -> float:
        """The current time of the schedule's clock."""
        return self._clock()
