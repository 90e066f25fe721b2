"""What came lately, as the policies without a forecast see it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.policies.policy import Observation, TenantView


def last_window(observation: Observation, view: TenantView) -> NDArray[np.float64]:
    """Requests per slot over the length of a window, up to now; shorter while less is known."""
    return view.history[-observation.slots :]


def mean_rate_rps(observation: Observation, view: TenantView) -> float | None:
    """Requests per second over that time; None where nothing has been seen yet."""
    recent = last_window(observation, view)
    return float(recent.mean()) / observation.slot_s if len(recent) else None
