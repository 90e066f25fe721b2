"""AutoETS of statsforecast: `migrator.forecast.auto_ets:AutoEts`, a maintained library's model.

Exponential smoothing with the error, trend and damping that fit the latest slots best.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.forecast.forecaster import Counts, Origins, PointForecaster

SEEN_WINDOWS = 3
"""Windows that it is fitted to, as many as the Informer sees; of more a fit takes seconds."""


class AutoEts(PointForecaster):
    """AutoETS of statsforecast, fitted to the last three windows."""

    name = "auto-ets"
    summary = "AutoETS of statsforecast, fitted to the last three windows"

    def __init__(self) -> None:
        """InputError where statsforecast is not installed."""
        try:
            from statsforecast.models import AutoETS
        except ModuleNotFoundError as error:
            raise InputError(
                f"{self.name} needs statsforecast, which is not installed: "
                "pip install 'migrator-gpu[statsforecast]'"
            ) from error
        self._model = AutoETS(season_length=1)

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the forecast of a fit to the windows before it."""
        points = np.empty((len(origins), slots))
        for row, origin in enumerate(origins):
            seen = history[max(0, origin - SEEN_WINDOWS * window_slots) : origin]
            is_constant = len(seen) < 2 or seen.min() == seen.max()
            # a fit to one number finds nothing to explain
            points[row] = seen.mean() if is_constant else self._model.forecast(seen, slots)["mean"]
        return np.maximum(points, 0.0)
