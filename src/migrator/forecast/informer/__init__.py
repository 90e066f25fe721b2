"""The Informer as a forecaster, from a file; torch is loaded when it is asked.

`informer:FILE` is a model that `migrator forecast train` saved. Where the history is too short for
it or has gaps, the last window's mean forecasts.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.forecast.forecaster import Counts
from migrator.forecast.simple import LastMean

if TYPE_CHECKING:
    from migrator.forecast.informer.trained import TrainedInformer

_log = logging.getLogger(__name__)


class SavedInformer:
    """A model from a file. The caller asks `check_slots` whether its slots are the model's."""

    summary = "an Informer from a file"

    def __init__(self, model: TrainedInformer, name: str) -> None:
        self.model, self.name, self.slot_s = model, name, model.slot_s
        self._warned: set[str] = set()

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots, or those of last-mean."""
        reason = _unfit(history, self.model.shape.lookback)
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

    def _last_mean(
        self, reason: str, history: Counts, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """The forecast of last-mean, with one warning per kind of reason."""
        kind = "".join(character for character in reason if not character.isdigit())
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning("%s: %s, so last-mean forecasts instead", self.name, reason)
        counted = np.isfinite(history) & (history >= 0)
        return LastMean().ahead(history[counted], slots, window_slots)


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


def _unfit(history: Counts, least: int) -> str:
    """Why the Informer has nothing to say of this history; empty where it has."""
    if len(history) < least:
        return f"the history has {len(history)} slots and it needs {least}"
    if not np.isfinite(history).all():
        return "the history has gaps"
    if (history < 0).any():
        return "the history has negative numbers of requests"
    return "" if history.any() else "no request has come yet"
