"""Arrivals without a trace: seeded, like a public trace in mean, burstiness and memory.

Each second's requests are Poisson with a rate that is itself random (a Cox process): the
measured mean, times the exponential of a sum of AR(1) paths, times a switch between two levels
where the data has one. Counts are drawn at the measured rate and scaled afterwards, because at
another rate the same model would be another shape. The mean is the one asked for in expectation:
a run that is short against the slowest swell may lie above or below it, as a real one would.
"""

from __future__ import annotations

import math
import zlib

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.core.registry import pick
from migrator.core.trace import Trace
from migrator.workload.traces.counting import LONGEST_S
from migrator.workload.traces.kinds import KINDS, Kind, Swell, Switch

__all__ = ["HIGHEST_RPS", "KINDS", "generate"]

HIGHEST_RPS = 1e9
"""A mean above it is a mistake."""

_STREAMS = 8
"""Counts, switch and up to six swells; fixed, so that one more swell leaves the others alone."""
_NEGLIGIBLE = 1e-12
"""What is left of a shock when it is forgotten."""


def generate(kind: str, *, mean_rps: float, seconds: int, seed: int) -> Trace:
    """Arrivals like those of `kind`. A longer trace of the same seed begins with the shorter."""
    chosen = pick("arrivals", kind, KINDS)
    _check(mean_rps, seconds, seed)
    native_rps = mean_rps if chosen.any_rate else chosen.measured.mean_rps
    # The kind is part of the seed, so that two tenants with one seed do not swell together.
    entropy = np.random.SeedSequence([seed, zlib.crc32(kind.encode())])
    counting, *shaping = (np.random.Generator(np.random.PCG64(s)) for s in entropy.spawn(_STREAMS))
    rate = native_rps * _shape(chosen, seconds, shaping)
    drawn = Trace(kind, counting.poisson(rate).astype(np.int64))
    return drawn if chosen.any_rate else drawn.scaled(mean_rps / native_rps)


def _check(mean_rps: float, seconds: int, seed: int) -> None:
    if not 0.0 < mean_rps <= HIGHEST_RPS:
        raise InputError(
            f"mean_rps: {mean_rps:g} is no rate to generate; give more than 0 and at most "
            f"{HIGHEST_RPS:g} requests per second"
        )
    if not 1 <= seconds <= LONGEST_S:
        raise InputError(f"seconds: {seconds} is out of range; give 1 to {LONGEST_S:,} seconds")
    if seed < 0:
        raise InputError(f"seed: {seed} is negative; give 0 or more")


def _shape(kind: Kind, seconds: int, streams: list[np.random.Generator]) -> NDArray[np.float64]:
    """The rate over its mean, second by second; 1 in expectation."""
    switching, *swelling = streams
    logarithm = np.zeros(seconds)
    for swell, stream in zip(kind.swells, swelling, strict=False):
        logarithm += math.sqrt(swell.variance) * _path(swell, seconds, stream) - swell.variance / 2
    rate: NDArray[np.float64] = np.exp(logarithm)
    if kind.switch:
        rate *= _level(kind.switch, seconds, switching)
    return rate


def _path(swell: Swell, seconds: int, stream: np.random.Generator) -> NDArray[np.float64]:
    """A stationary AR(1) path of unit variance, summed up by doubling how far back it reaches."""
    path = stream.standard_normal(seconds)
    if swell.time_s == 0.0:
        return path
    keep = math.exp(-1.0 / swell.time_s)
    path[1:] *= math.sqrt(1.0 - keep * keep)
    reach = 1
    while reach < seconds and keep**reach > _NEGLIGIBLE:
        path[reach:] += keep**reach * path[:-reach]
        reach *= 2
    return path


def _level(switch: Switch, seconds: int, stream: np.random.Generator) -> NDArray[np.float64]:
    """A two-state Markov chain of mean 1: each second repeats the last or is decided anew."""
    kept, chosen = stream.random((seconds, 2)).T
    decided = np.where(kept < switch.keep, 0, np.arange(seconds))
    on = chosen[np.maximum.accumulate(decided)] < switch.on_share
    mean = switch.on_share + (1.0 - switch.on_share) * switch.off_level
    return np.where(on, 1.0, switch.off_level) / mean
