"""Generated arrivals: seeded, with the mean, burstiness and memory of a public trace.

The requests of each second are Poisson with a random rate (a Cox process): the measured mean, times
the exponential of a sum of AR(1) paths, times a switch between two levels if the data has one.
Counts are drawn at the measured rate and scaled afterwards, because at another rate the same model
would have another shape. The mean is the requested one in expectation: a run that is short relative
to the slowest AR(1) path may lie above or below it, as a real one would.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from migrator.core.errors import InputError
from migrator.core.registry import pick
from migrator.core.scenario import Trace
from migrator.workload.traces.reading import LONGEST_S

HIGHEST_RPS = 1e9
"""Highest accepted mean rate in requests per second. A higher one is a mistake."""

_STREAMS = 8
"""Number of random streams: counts, switch and up to six swells.

Fixed, so that an additional swell does not change the others.
"""
_NEGLIGIBLE = 1e-12
"""Weight below which the effect of a past value is ignored."""


LAGS_S = (1, 10, 60, 200)
"""Lags in seconds of the reported autocorrelation."""
VARIABLE = "MIGRATOR_DATA"
"""Environment variable of a folder that contains the trace files, directly or in `traces`."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of the requests per second."""

    seconds: int
    mean_rps: float
    dispersion: float
    """Variance over mean: 1 for a Poisson process."""
    autocorrelation: tuple[float, ...]
    """At each of LAGS_S; NaN if the trace is too short or constant."""
    empty_share: float
    """Fraction of the seconds without a request."""


@dataclass(frozen=True)
class Swell:
    """A slowly varying component of the logarithm of the rate."""

    variance: float
    time_s: float
    """Seconds in which its correlation falls to 1/e; 0 means independent seconds."""


@dataclass(frozen=True)
class Switch:
    """Arrivals that alternate between two levels: bursts and silence, or rare plateaus."""

    on_share: float
    keep: float
    """Probability per second that the level is kept without a new draw."""
    off_level: float = 0.0
    """The rate when off, as a fraction of the rate when on."""


@dataclass(frozen=True)
class ArrivalKind:
    """One kind of arrivals."""

    name: str
    summary: str
    """One line for users."""
    provenance: str
    """The public data on which the numbers were measured, and its licence."""
    file_name: str | None
    """File name of the trace in the folder MIGRATOR_DATA; None for a theoretical kind."""
    measured: Statistics
    swells: tuple[Swell, ...] = ()
    switch: Switch | None = None
    any_rate: bool = False
    """Whether counts are drawn at the requested rate, not at the measured one and then scaled."""


def _kinds() -> dict[str, ArrivalKind]:
    text = files("migrator.workload.traces").joinpath("kinds.json").read_text(encoding="utf-8")
    kinds = TypeAdapter(tuple[ArrivalKind, ...]).validate_python(json.loads(text)["kinds"])
    return {kind.name: kind for kind in kinds}


KINDS: Mapping[str, ArrivalKind] = _kinds()
"""All kinds by name."""


def generate(kind: str, *, mean_rps: float, seconds: int, seed: int) -> Trace:
    """Arrivals of a kind. A longer trace with the same seed begins with the shorter one."""
    chosen = pick("arrivals", kind, KINDS)
    _check(mean_rps, seconds, seed)
    native_rps = mean_rps if chosen.any_rate else chosen.measured.mean_rps
    # The kind is part of the seed, so that two tenants with one seed have independent arrivals.
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


def _shape(
    kind: ArrivalKind, seconds: int, streams: list[np.random.Generator]
) -> NDArray[np.float64]:
    """The rate per second relative to its mean; 1 in expectation."""
    switching, *swelling = streams
    logarithm = np.zeros(seconds)
    for swell, stream in zip(kind.swells, swelling, strict=False):
        logarithm += math.sqrt(swell.variance) * _path(swell, seconds, stream) - swell.variance / 2
    rate: NDArray[np.float64] = np.exp(logarithm)
    if kind.switch:
        rate *= _level(kind.switch, seconds, switching)
    return rate


def _path(swell: Swell, seconds: int, stream: np.random.Generator) -> NDArray[np.float64]:
    """A stationary AR(1) path of unit variance, summed by repeated doubling of the reach."""
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
    """A two-state Markov chain of mean 1. Each second keeps the last state or draws one."""
    kept, chosen = stream.random((seconds, 2)).T
    decided = np.where(kept < switch.keep, 0, np.arange(seconds))
    on = chosen[np.maximum.accumulate(decided)] < switch.on_share
    mean = switch.on_share + (1.0 - switch.on_share) * switch.off_level
    return np.where(on, 1.0, switch.off_level) / mean


def real_file(kind: str, folder: Path | None = None) -> Path | None:
    """The trace that `kind` was measured on; None if the file does not exist.

    The default folder is that of the environment variable.
    """
    name = pick("arrivals", kind, KINDS).file_name
    named = os.environ.get(VARIABLE)
    data = folder or (Path(named) if named else None)
    if not name or data is None:
        return None
    return next((path for path in (data / name, data / "traces" / name) if path.is_file()), None)
