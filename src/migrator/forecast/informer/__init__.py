"""The Informer as a forecaster, by name or from a file; torch is loaded when it is asked.

`informer` trains itself: when a history is long enough for the first time, and whenever it has
grown by half, always on its beginning of exactly that length. So the same history always gives the
same forecast. With `background=True`, for live use, training runs in a thread and no caller waits:
meanwhile the newest model trained on a beginning of that history forecasts, or the last window's
mean.

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
from migrator.forecast.simple import LastMean

if TYPE_CHECKING:
    from migrator.forecast.informer.trained import TrainedInformer
    from migrator.forecast.informer.training import Settings

GROWTH = 1.5
"""The model is trained again when the history has grown by this factor."""
KEPT = 256
"""Models that are kept, 40 MB in all; a backtest needs about five per tenant."""
_FAILURES = (MigratorError, ValueError, ArithmeticError, RuntimeError, MemoryError)
"""What may go wrong in training: bad input, no solution, torch, no memory."""
_KEEPING = threading.Lock()
"""Held while a thread stores its model."""
_log = logging.getLogger(__name__)


class _Fallback:
    """Forecasts the last mean where the Informer cannot, with one warning per kind of reason."""

    name: str

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def _last_mean(
        self, reason: str, history: Counts, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        kind = "".join(character for character in reason if not character.isdigit())
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning("%s: %s, so last-mean forecasts instead", self.name, reason)
        counted = np.isfinite(history) & (history >= 0)
        return LastMean().ahead(history[counted], slots, window_slots)


class SavedInformer(_Fallback):
    """A model from a file. The caller asks `check_slots` whether its slots are the model's."""

    summary = "a saved Informer"

    def __init__(self, model: TrainedInformer, name: str) -> None:
        super().__init__()
        self.model, self.name, self.slot_s = model, name, model.slot_s

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots, or those of last-mean."""
        reason = unfit(history, self.model.shape.lookback)
        if reason:
            return self._last_mean(reason, history, slots, window_slots)
        return self.model.ahead(history, slots, window_slots)

    def check_slots(self, slot_s: float, window_slots: int) -> None:
        """InputError where the caller's slots or windows are of another length than the model's."""
        if not np.isclose(slot_s, self.slot_s):
            raise InputError(
                f"{self.name}: was trained on slots of {self.slot_s:g} s and these have "
                f"{slot_s:g} s; train one with --slot-s {slot_s:g}"
            )
        trained = self.model.shape.ahead
        if trained != window_slots:
            raise InputError(
                f"{self.name}: was trained for windows of {trained} slots and these have "
                f"{window_slots}; train one with --window-s {window_slots * slot_s:g}"
            )


class InformerForecaster(_Fallback):
    """Trains itself on the histories it is asked about."""

    name = "informer"
    summary = "Informer trained on the history, a minute the first time; informer:FILE: a saved one"

    def __init__(self, settings: Settings | None = None, *, background: bool = False) -> None:
        super().__init__()
        self._settings, self.background = settings, background
        self._models: dict[str, TrainedInformer] = {}
        self._training: set[str] = set()
        self._threads: list[threading.Thread] = []

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots, or those of last-mean."""
        reason, model = _untrainable(history, window_slots), None
        if not reason and self.background:
            self.refresh(history, window_slots)
            model = self._newest(history, window_slots)
            reason = "its first training is not finished"
        elif not reason:
            try:
                model = self._train(history, window_slots)
            except InputError as error:
                reason = f"it could not be trained ({error})"
        if model is None:
            return self._last_mean(reason, history, slots, window_slots)
        return model.ahead(history, slots, window_slots)

    def refresh(self, history: Counts, window_slots: int) -> None:
        """Train in a thread where `history` has grown enough; returns at once."""
        if _untrainable(history, window_slots):
            return
        key = _key(history[: _lengths(history, window_slots)[-1]], window_slots)
        if key in self._models or key in self._training:
            return
        self._training.add(key)
        copied = history.copy()

        def train() -> None:
            try:
                self._train(copied, window_slots)
            except _FAILURES as error:  # the next forecast tries again
                _log.warning("%s: training failed (%s), to be tried again", self.name, error)
            finally:
                self._training.discard(key)

        thread = threading.Thread(target=train, daemon=True)
        self._threads = [thread for thread in self._threads if thread.is_alive()] + [thread]
        thread.start()

    def wait(self) -> None:
        """Until every training that was begun is finished."""
        while self._threads:
            self._threads.pop().join()

    def _train(self, history: Counts, window_slots: int) -> TrainedInformer:
        """The model of this history's beginning, trained now if it was not before."""
        from migrator.forecast.informer.network import Shape
        from migrator.forecast.informer.training import DEFAULT, train

        begin = history[: _lengths(history, window_slots)[-1]]
        key = _key(begin, window_slots)
        model = self._models.get(key)
        if model is None:
            shape = Shape.for_window(window_slots)
            model = train(begin, 1.0, shape, self._settings or DEFAULT)
            with _KEEPING:
                self._models[key] = model
                while len(self._models) > KEPT:
                    del self._models[next(iter(self._models))]
        return model

    def _newest(self, history: Counts, window_slots: int) -> TrainedInformer | None:
        """The model of the longest beginning of just this history, if any is finished."""
        for length in reversed(_lengths(history, window_slots)):
            model = self._models.get(_key(history[:length], window_slots))
            if model is not None:
                return model
        return None


def _key(begin: Counts, window_slots: int) -> str:
    """Which model it is: all that it is trained on tells, as quiet tenants may begin alike."""
    content = np.ascontiguousarray(begin).tobytes()
    return f"{window_slots} {hashlib.sha256(content).hexdigest()}"


def _lengths(history: Counts, window_slots: int) -> list[int]:
    """Of its beginnings that are trained on as it grows, shortest first."""
    lengths = [_least_slots(window_slots)]
    while int(lengths[-1] * GROWTH) <= len(history):
        lengths.append(int(lengths[-1] * GROWTH))
    return lengths


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
    from migrator.forecast.informer.trained import load

    return SavedInformer(load(path), f"informer:{path}")


def require_torch(who: str) -> None:
    """InputError with what to do where torch is not installed."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise InputError(
            f"{who} needs torch, which is not installed: pip install 'migrator-gpu[forecast]'"
        ) from error
    _log.debug("torch %s", torch.__version__)


def unfit(history: Counts, least: int) -> str:
    """Why the Informer has nothing to say of this history; empty where it has."""
    if len(history) < least:
        return f"the history has {len(history)} slots and it needs {least}"
    if not np.isfinite(history).all():
        return "the history has gaps"
    if (history < 0).any():
        return "the history has negative numbers of requests"
    return "" if history.any() else "no request has come yet"


def _untrainable(history: Counts, window_slots: int) -> str:
    """Why it cannot be trained for this history; empty where it can."""
    reason = unfit(history, _least_slots(window_slots))
    length = _lengths(history, window_slots)[-1]
    if reason or history[:length].any():
        return reason
    return f"no request came in the first {length} slots, which it would be trained on"


FORECASTERS = (InformerForecaster(),)
