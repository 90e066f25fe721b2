"""A forecaster: history in, arrivals ahead out, as equally likely scenarios."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]
"""Requests per slot."""


class Forecaster(Protocol):
    """One way to look ahead. Implementations are values: the same history gives the same answer."""

    name: str
    summary: str
    """One line for `migrator forecasters`."""

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots, one per row, equally likely, none negative.

        `history` ends now; `window_slots` is the length of a window. Without any history nothing
        is known of the rate, so every slot gets one request: tenants then count alike.
        """
        ...
