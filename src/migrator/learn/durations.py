"""How long a retraining takes with one configuration, from the duration of another.

A retraining has a fixed part (reading samples, choosing kernels, evaluating, saving) and its steps.
The steps follow from epochs and samples; a step takes less time where layers are frozen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from migrator.core.training import STEP_TIMES, Layers
from migrator.learn.retraining import RetrainingSettings

_SPREAD, _SPREAD_UNMEASURED = 0.05, 0.25
"""Standard deviation of the time of the steps, where the time of a step with these layers has been
measured and where it has not."""


@dataclass(frozen=True)
class Duration:
    """Seconds of a retraining with these settings on this number of samples."""

    settings: RetrainingSettings
    samples: int
    """Of the window, replayed ones included, of which the configuration may train on a part."""
    seconds: float
    fixed_s: float
    """Of these: what does not grow with the steps."""
    spread_s: float = 0.0
    """Standard deviation of the seconds."""

    def of(
        self,
        settings: RetrainingSettings,
        samples: int,
        measured: Mapping[Layers, float] | None = None,
    ) -> Duration:
        """The duration with other settings. `measured`: the time of a step with these layers."""
        if (settings, samples) == (self.settings, self.samples):
            return self
        layers = {settings.layers, self.settings.layers}
        exact = len(layers) == 1 or layers <= {*(measured or ())}
        times = step_times(measured or {})
        known = times[self.settings.layers] * _steps(self.settings, self.samples)
        wanted = times[settings.layers] * _steps(settings, samples)
        steps_s = (self.seconds - self.fixed_s) * wanted / known
        spread_s = (_SPREAD if exact else _SPREAD_UNMEASURED) * steps_s
        return Duration(
            settings,
            samples,
            self.fixed_s + steps_s,
            self.fixed_s,
            math.hypot(self.spread_s, spread_s),
        )


def step_times(measured: Mapping[Layers, float]) -> dict[Layers, float]:
    """Times of a step with these layers: measured ones, others by their usual relation to them."""
    usual = [measured[layers] / STEP_TIMES[layers] for layers in Layers if layers in measured]
    scale = usual[-1] if usual else 1.0
    return {layers: measured.get(layers, scale * STEP_TIMES[layers]) for layers in Layers}


def _steps(settings: RetrainingSettings, samples: int) -> int:
    return settings.steps(round(settings.part * samples))
