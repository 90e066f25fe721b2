"""A measured quantity over the number of SMs: latency of a batch, seconds of a retraining.

Measured at a few sizes, needed at any: an MPS share has any number of SMs. Time follows
a + b / SMs closely on real boards (a: launch and memory, b: the work that SMs share), so
between two points the value is linear in 1 / SMs, and beyond them it follows the fitted law
from the nearest point on.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Curve:
    """Value over SMs through measured points, ascending in SMs."""

    points: tuple[tuple[float, float], ...]

    def at(self, sms: float) -> float:
        """The value at `sms` SMs."""
        first, last = self.points[0], self.points[-1]
        if sms <= first[0] or sms >= last[0]:
            nearest = first if sms <= first[0] else last
            return nearest[1] * self._law(sms) / self._law(nearest[0])
        right = bisect_left(self.points, (sms,))
        (low, above), (high, below) = self.points[right - 1], self.points[right]
        part = (1 / sms - 1 / low) / (1 / high - 1 / low)
        return above + part * (below - above)

    def scaled(self, factor: float) -> Curve:
        """The same shape, every value times `factor`."""
        return Curve(tuple((sms, value * factor) for sms, value in self.points))

    def _law(self, sms: float) -> float:
        a, b = self._fit
        return a + b / sms

    @cached_property
    def _fit(self) -> tuple[float, float]:
        """a and b of a + b / SMs by least squares, neither of them negative."""
        if len(self.points) == 1:
            return 0.0, 1.0
        inverse = [1 / each for each, _ in self.points]
        values = [value for _, value in self.points]
        mean_x, mean_y = sum(inverse) / len(inverse), sum(values) / len(values)
        spread = sum((x - mean_x) ** 2 for x in inverse)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(inverse, values, strict=True))
        slope = min(max(0.0, slope / spread), mean_y / mean_x)
        return mean_y - slope * mean_x, slope
