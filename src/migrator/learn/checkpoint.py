"""Checkpoints of a training: when they are written, and which one a resumed training starts from.

Each is written atomically with a checksum. The last two are kept; the newest undamaged one is
used. A checkpoint saves the time since the previous one if the process dies. Small checkpoints are
written after every epoch, large ones (seconds each) rarely enough to cost at most `TIME_SHARE` of
the training.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.io.atomic_write import clear_unfinished, write_atomically
from migrator.io.locks import FolderLock
from migrator.io.weights_folder import DamagedWeightsError, WeightsFolder
from migrator.learn.model import Model

KEPT = 2
TIME_SHARE = 0.05
"""The part of the training's time that slower checkpoints may take."""
FREE_S = 0.2
"""Checkpoints that take no longer than this are written after every epoch."""

_SETTINGS, _SERVED, _WINDOW = "settings.json", "course", "window-"

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
        self._best = WeightsFolder(folder / "best", ".weights")
        self._reported: set[int] = set()

    def write(
        self, number: int, model: Model, about: dict[str, Any], *, training: bool = True
    ) -> None:
        """Add a checkpoint and drop all but the last ones; `training`: amid a training."""
        self._weights.write(number, partial(model.save, training=training), {"about": about})
        self._reported.discard(number)
        for old in self._weights.numbers()[:-KEPT]:
            self._weights.remove(old)

    def write_best(self, epoch: int, model: Model) -> None:
        """Keep the model of the best epoch so far, which the next checkpoint depends on."""
        if epoch not in self._best.numbers():
            self._best.write(epoch, model.save, {})
        for old in self._best.numbers()[:-KEPT]:
            self._best.remove(old)

    def load_best(self, epoch: int, model: Model) -> bool:
        """Load the model of the best epoch; False if it is missing or damaged."""
        try:
            self._best.read(epoch)
        except DamagedWeightsError:
            self.warn(f"{self._best.path(epoch)}: damaged; the training starts again")
            return False
        model.load(self._best.path(epoch))
        return True

    def newest_good(self) -> Checkpoint | None:
        """The newest one that is whole; a warning for every damaged one passed over."""
        for number, entry in self._weights.readable(self._pass_over):
            return Checkpoint(number, self._weights.path(number), entry["about"])
        return None

    def has_any(self) -> bool:
        return bool(self._weights.numbers())

    def clear(self) -> None:
        """Remove the folder: what it led to has been kept elsewhere."""
        shutil.rmtree(self.folder, ignore_errors=True)

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
    """Decides when the next checkpoint is due: the first after the first epoch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cost_s, self._last_s = 0.0, clock()

    @property
    def due(self) -> bool:
        """Whether a checkpoint should be written now."""
        elapsed_s = self._clock() - self._last_s
        return self._cost_s <= FREE_S or elapsed_s * TIME_SHARE >= self._cost_s

    def time(self, write: Callable[[], None]) -> None:
        """Write a checkpoint and note how long it took."""
        began_s = self._clock()
        write()
        self._last_s = self._clock()
        self._cost_s = self._last_s - began_s


class RunFolder:
    """The folder that a benchmark's run is resumed from; locked while it runs.

    `course/` holds the serving model after every scenario, `window-N/` the epochs of the scenario
    in progress, `settings.json` the settings, data and weights.
    """

    def __init__(self, folder: Path, warn: Warn) -> None:
        self.folder, self.warn = folder, warn
        self.served = Checkpoints(folder / _SERVED, warn)
        self._claim: FolderLock | None = None

    def begin(self, identity: Mapping[str, Any], *, resume: bool) -> Checkpoint | None:
        """Lock the folder. With `resume`, the last good checkpoint of this very run.

        None at the beginning of a run. InputError if the folder belongs to another one.
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
        checkpoint = self.served.newest_good()
        if checkpoint is None and self.served.has_any():
            raise InputError(
                f"{self.folder}: all its checkpoints are damaged; delete it and start again"
            )
        return checkpoint

    def epochs(self, scenario: int) -> Checkpoints:
        return Checkpoints(self.folder / f"{_WINDOW}{scenario}", self.warn)

    def finish(self, scenario: int, model: Model, about: dict[str, Any]) -> None:
        """Save the model that serves after a scenario; delete the scenario's epochs."""
        self.served.write(scenario, model, about, training=False)
        self.epochs(scenario).clear()

    def close(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def _require_empty(self) -> None:
        """A new run must not resume from another run's checkpoints."""
        if (self.folder / _SETTINGS).exists():
            raise InputError(
                f"--checkpoint: {self.folder} holds a run already; add --resume or name another "
                "folder"
            )
        left = [*self.folder.glob(_SERVED), *self.folder.glob(f"{_WINDOW}*")]
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
