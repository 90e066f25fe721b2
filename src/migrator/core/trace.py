"""A trace: how many requests came in each second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests per second of wall time, second 0 first."""

    name: str
    counts: NDArray[np.int64]

    @property
    def seconds(self) -> int:
        """How long it is."""
        return len(self.counts)

    @property
    def mean_rps(self) -> float:
        """Requests per second on average."""
        return float(self.counts.mean()) if self.seconds else 0.0

    def scaled(self, factor: float) -> Trace:
        """Every rate times `factor`, the shape kept: what rounding leaves over is carried on."""
        total = np.floor(np.cumsum(self.counts * factor) + 0.5).astype(np.int64)
        return Trace(self.name, np.diff(total, prepend=0))

    def from_second(self, second: int) -> Trace:
        """What comes from `second` on."""
        return Trace(self.name, self.counts[second:])
