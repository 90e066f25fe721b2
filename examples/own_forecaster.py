"""A forecaster of your own that needs no other library.

Run it in this folder:

    migrator simulate quickstart.yaml --forecaster own_forecaster:highest_of_three

A scenario names it with `forecaster: own_forecaster:highest_of_three`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.forecast.forecaster import Counts


def highest_of_three(history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
    """The highest mean of the last three windows, in every slot."""
    means = [history[-n * window_slots :][:window_slots].mean() for n in (1, 2, 3)]
    return np.full(slots, max(means))
