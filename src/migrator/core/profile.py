"""A model measured on a board: how fast it serves, how fast it trains, what a start costs.

Not to be confused with NVIDIA's MIG profiles (3g.20gb), which are in the catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from migrator.core.curve import Curve


@dataclass(frozen=True)
class Overhead:
    """What passes until a new instance serves, in its parts."""

    create_s: float
    """The driver: destroy what was there, create GPU and compute instance. None under MPS."""
    start_s: float
    """The process: import libraries, build the model on the host. None where one waits ready."""
    load_s: float
    """On the GPU: context, weights, first inference."""

    def total_s(self, *, mig: bool, prepared: bool) -> float:
        """Under MIG the driver's part counts, with a prepared process its start does not."""
        return self.create_s * mig + self.start_s * (not prepared) + self.load_s


@dataclass(frozen=True)
class Profile:
    """What was measured of one model on one board."""

    model: str
    board: str
    latency_ms: Mapping[int, Curve]
    """Batch -> milliseconds of one batch over SMs."""
    training_ratio: float
    """A training step over an inference of the same samples, in time."""
    interference: float
    """Under MPS: part by which a batch is slower beside neighbours holding `INTERFERING_PART`."""
    contention: float
    """Unpartitioned: part by which a batch is slower for every busy neighbour."""
    overhead: Overhead
    provenance: str

    def latency_s(self, batch: int, sms: float) -> float:
        """Seconds of a batch of any size: linear between measured batches, through none at 0."""
        sizes = sorted(self.latency_ms)
        if batch in self.latency_ms:
            return self.latency_ms[batch].at(sms) / 1e3
        if batch < sizes[0] or len(sizes) == 1:
            return self.latency_ms[sizes[0]].at(sms) / 1e3 * max(1.0, batch / sizes[0])
        above = next((each for each in sizes if each > batch), sizes[-1])
        below = sizes[sizes.index(above) - 1]
        low, high = self.latency_ms[below].at(sms), self.latency_ms[above].at(sms)
        return (low + (batch - below) / (above - below) * (high - low)) / 1e3

    def training_s(self, samples: float) -> Curve:
        """Seconds to train on `samples` samples, over SMs, by the largest batch's time."""
        batch = max(self.latency_ms)
        return self.latency_ms[batch].scaled(samples * self.training_ratio / batch / 1e3)


INTERFERING_PART = 64 / 132
"""The part of the SMs that the neighbour held when interference was measured."""
