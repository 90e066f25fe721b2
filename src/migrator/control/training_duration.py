"""How long a tenant's retrainings take, learned from those that have ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from migrator.core.training import Layers

_SMOOTHING = 0.5
"""Weight of a measurement against the earlier ones."""
_FASTEST, _SLOWEST = 0.5, 10.0
"""Limits of the ratio of a measured duration to the profile."""
_DEVIATION = 0.1
"""Relative standard deviation of a duration before any is measured."""
_FOUR_OF_FIVE = 0.84
"""Number of standard deviations that four of five retrainings stay below."""


@dataclass
class TrainingDuration:
    """A fixed part, and one that grows with the samples as the profile says."""

    slower: float = 1.0
    """Measured duration of retrainings divided by the profile's duration: of the layers that were
    retrained last, and of those that were never."""
    fixed_s: float = 0.0
    """Measured seconds of a retraining that its samples do not change."""
    variance: float = _DEVIATION**2
    """Of that ratio, relative to its square."""
    by_layers: dict[Layers, float] = field(default_factory=dict)
    """The same of every kind of layers that was retrained."""

    @property
    def longer(self) -> float:
        """The duration that four of five retrainings do not exceed, relative to the mean."""
        return 1 + _FOUR_OF_FIVE * math.sqrt(self.variance)

    def relative(self, layers: Layers) -> float:
        """The ratio for these layers, relative to `slower`."""
        return self.by_layers.get(layers, self.slower) / self.slower

    @property
    def facts(self) -> dict[str, Any]:
        """What was measured, for the next daemon."""
        return {
            "slower": round(self.slower, 3),
            "fixed_s": round(self.fixed_s, 3),
            "variance": round(self.variance, 6),
            "slower_by_layers": {kind.value: round(by, 3) for kind, by in self.by_layers.items()},
        }

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Begin with what an earlier daemon measured."""
        self.slower = float(facts.get("slower", self.slower))
        self.fixed_s = float(facts.get("fixed_s", self.fixed_s))
        self.variance = float(facts.get("variance", self.variance))
        by_layers = facts.get("slower_by_layers", {})
        self.by_layers = {Layers(layers): float(ratio) for layers, ratio in by_layers.items()}

    def measure(
        self,
        profile_s: float,
        seconds: float,
        fixed_s: float,
        *,
        replaces: bool,
        layers: Layers = Layers.ALL,
    ) -> None:
        """Learn from a retraining that has ended.

        `profile_s`: by the profile; `fixed_s`: seconds of it that do not depend on its samples;
        `replaces`: the earlier measurements do not count; `layers`: that were retrained.
        """
        weight = 1.0 if replaces else _SMOOTHING
        before = self.by_layers.get(layers, self.slower)
        factor = min(_SLOWEST, max(_FASTEST, (seconds - fixed_s) / profile_s))
        off = (factor * profile_s + fixed_s) / (before * profile_s + self.fixed_s) - 1
        self.variance += _SMOOTHING * (off * off - self.variance)
        self.slower = self.by_layers[layers] = before + weight * (factor - before)
        self.fixed_s += weight * (fixed_s - self.fixed_s)

    def doubt(self) -> None:
        """Move towards the profile: one long measurement must not block retrainings forever."""
        self.slower += _SMOOTHING * (1 - self.slower)
        for layers, ratio in self.by_layers.items():
            self.by_layers[layers] = ratio + _SMOOTHING * (1 - ratio)
        self.fixed_s -= _SMOOTHING * self.fixed_s
