"""The Informer among the forecasters, by name or from a file; torch is loaded when it is asked.

`informer` trains itself. It is still a value: the model that answers depends on the history
alone. A history is trained on when it first is long enough and whenever it has grown by half,
always on its beginning of just that length, so simulations repeat. With `background=True`, for
live use, nobody waits for training: until a model is there, and while it is trained anew in a
thread, the newest finished one answers, or the last window's mean.

`informer:FILE` uses a saved model as it is.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError, MigratorError
from migrator.forecast.forecaster import Counts
from migrator.forecast.last_mean import LastMean

if TYPE_CHECKING:
    from migrator.forecast.informer.trained import TrainedInformer
    from migrator.forecast.informer.training import Settings

GROWTH = 1.5
"""A history that has grown so many times is worth training on again."""

_log = logging.getLogger(__name__)


class SavedInformer:
    """A model from a file. The caller compares `slot_s` with its own slots (`check_slots`)."""

    summary = "a saved Informer"

    def __init__(self, model: TrainedInformer, name: str) -> None:
        self.model, self.name, self.slot_s = model, name, model.slot_s
        self._said: set[str] = set()

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots; the simple forecaster's where it cannot say."""
        reason = unfit(history, self.model.shape.lookback)
        if reason:
            return _instead(self._said, self.name, reason, history, slots, window_slots)
        return self.model.ahead(history, slots, window_slots)

    def check_slots(self, slot_s: float) -> None:
        """InputError where the caller's slots are of another length than the model's."""
        if not np.isclose(slot_s, self.slot_s):
            raise InputError(
                f"{self.name}: was trained on slots of {self.slot_s:g} s and these have "
                f"{slot_s:g} s; train one with --slot-s {slot_s:g}"
            )


class InformerForecaster:
    """Trains itself on the histories it is asked about."""

    name = "informer"
    summary = "Informer trained on the history, a minute the first time; informer:FILE: a saved one"

    def __init__(self, settings: Settings | None = None, *, background: bool = False) -> None:
        self._settings, self.background = settings, background
        self._models: dict[str, dict[int, TrainedInformer]] = {}
        self._asked: set[tuple[str, int]] = set()
        self._threads: list[threading.Thread] = []
        self._said: set[str] = set()

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots; the simple forecaster's where it cannot say."""
        reason, model = unfit(history, _least_slots(window_slots)), None
        if not reason and self.background:
            self.refresh(history, window_slots)
            model = self._newest(history, window_slots)
            reason = "its first training is not finished"
        elif not reason:
            model = self._trained(history, window_slots)
        if model is None:
            return _instead(self._said, self.name, reason, history, slots, window_slots)
        return model.ahead(history, slots, window_slots)

    def refresh(self, history: Counts, window_slots: int) -> None:
        """Train in a thread where `history` has grown enough; returns at once."""
        if unfit(history, _least_slots(window_slots)):
            return
        key = (_series(history, window_slots), _length(history, window_slots))
        if key in self._asked:
            return
        self._asked.add(key)
        own = (history.copy(), window_slots)
        thread = threading.Thread(target=self._trained, args=own, daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Until every training that was begun is finished."""
        while self._threads:
            self._threads.pop().join()

    def _trained(self, history: Counts, window_slots: int) -> TrainedInformer:
        """The model of this history's beginning, trained now if it was not before."""
        from migrator.forecast.informer.network import Shape
        from migrator.forecast.informer.training import DEFAULT, train

        length = _length(history, window_slots)
        models = self._models.setdefault(_series(history, window_slots), {})
        if length not in models:
            shape = Shape.for_window(window_slots)
            models[length] = train(history[:length], 1.0, shape, self._settings or DEFAULT)
            for older in sorted(models)[:-2]:
                del models[older]
        return models[length]

    def _newest(self, history: Counts, window_slots: int) -> TrainedInformer | None:
        models = dict(self._models.get(_series(history, window_slots), {}))
        return models[max(models)] if models else None


def _series(history: Counts, window_slots: int) -> str:
    """Which tenant's it is: histories grow, so the beginning tells them apart."""
    begin = np.ascontiguousarray(history[: _least_slots(window_slots)])
    return f"{window_slots} {hashlib.sha256(begin.tobytes()).hexdigest()}"


def _length(history: Counts, window_slots: int) -> int:
    """How much of its beginning is trained on."""
    length = _least_slots(window_slots)
    while int(length * GROWTH) <= len(history):
        length = int(length * GROWTH)
    return length


@cache
def _least_slots(window_slots: int) -> int:
    """The shortest history to train on."""
    require_torch("informer")
    from migrator.forecast.informer.network import Shape
    from migrator.forecast.informer.training import least_slots

    return least_slots(Shape.for_window(window_slots))


def saved(path: Path) -> SavedInformer:
    """The forecaster `informer:FILE`."""
    require_torch("informer")
    from migrator.forecast.informer.file import load

    return SavedInformer(load(path), f"informer:{path}")


def require_torch(who: str) -> None:
    """MigratorError with what to do where torch is not installed."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MigratorError(
            f"{who} needs torch, which is not installed: pip install 'migrator[forecast]'"
        ) from error
    _log.debug("torch %s", torch.__version__)


def unfit(history: Counts, least: int) -> str:
    """Why the Informer has nothing to say of this history; empty where it has."""
    if len(history) < least:
        return f"the history has {len(history)} slots and it needs {least}"
    if not np.isfinite(history).all():
        return "the history has gaps"
    return "" if history.any() else "no request has come yet"


def _instead(
    said: set[str], name: str, reason: str, history: Counts, slots: int, window_slots: int
) -> NDArray[np.float64]:
    """The simple forecaster's answer, and once per kind of reason a warning that it is."""
    kind = "".join(each for each in reason if not each.isdigit())
    if kind not in said:
        said.add(kind)
        _log.warning("%s: %s, so last-mean forecasts instead", name, reason)
    return LastMean().ahead(history[np.isfinite(history)], slots, window_slots)
