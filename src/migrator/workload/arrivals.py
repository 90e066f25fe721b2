"""A tenant's arrivals: loaded or generated, with checks of their length and rate.

Single requests are drawn from the counts per second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board, multisets
from migrator.core.errors import InputError
from migrator.core.profiles import Service
from migrator.core.scenario import Trace
from migrator.io.data_file import beside
from migrator.io.strict import Location, key_path, refuse
from migrator.workload.entries import ArrivalsEntry, TenantEntry
from migrator.workload.traces.formats import load_trace
from migrator.workload.traces.generator import generate


def highest_rps(service: Service, board: Board) -> float:
    """Highest rate in requests per second at which the whole board can serve the tenant."""
    capability = service.capabilities_rps(board)
    return max(
        sum(capability[gpcs] for gpcs in sizes)
        for sizes in multisets(board)
        if sizes[0] >= service.min_gpcs
    )


def least_gpcs(service: Service, board: Board) -> int | None:
    """The smallest instance that satisfies `min_gpcs` and can serve the tenant."""
    able = service.capabilities_rps(board)
    return min((g for g, rps in able.items() if rps > 0 and g >= service.min_gpcs), default=None)


def fit_together(sizes: Iterable[int], board: Board) -> bool:
    """Whether the board has room for instances of at least these sizes at the same time."""
    wanted = sorted(sizes, reverse=True)
    return any(
        len(wanted) <= len(there)
        and all(least <= size for least, size in zip(wanted, there, strict=False))
        for there in multisets(board)
    )


HISTORY_S = 600
"""Seconds of history before the run if offset_s is not given and the trace is long enough."""


@dataclass(frozen=True)
class ArrivalSource:
    """The source of arrivals, before the number of windows is known."""

    location: Location
    entry: ArrivalsEntry
    loaded: Trace | None
    """The trace in the file; None for generated arrivals of any length."""

    def windows(self, window_s: int) -> int | None:
        """The number of windows after some history; None for any number."""
        if self.loaded is None:
            return None
        if self.entry.offset_s is not None:
            return max(0, self.loaded.seconds - self.entry.offset_s) // window_s
        fit = self.loaded.seconds // window_s
        return fit if fit <= 1 else fit - 1

    def offset_s(self, windows: int, window_s: int) -> int:
        """The start of the run in seconds: as given, else after as much history as is available."""
        if self.entry.offset_s is not None:
            return self.entry.offset_s
        useful = max(HISTORY_S, window_s)
        if self.loaded is None:
            return useful
        return max(0, min(useful, self.loaded.seconds - windows * window_s))


def arrival_sources(tenants: Sequence[TenantEntry], folder: Path) -> list[ArrivalSource]:
    """The arrivals of every tenant. Paths are relative to `folder`."""
    return [
        _source(tenant.arrivals, ("tenants", index, "arrivals"), folder)
        for index, tenant in enumerate(tenants)
    ]


def _source(entry: ArrivalsEntry, location: Location, folder: Path) -> ArrivalSource:
    if entry.trace is None:
        _require_generator(entry, location)
        return ArrivalSource(location, entry, None)
    _require_trace(entry, location)
    return ArrivalSource(location, entry, _loaded(entry.trace, (*location, "trace"), folder))


def scaled_arrivals(
    source: ArrivalSource,
    service: Service,
    board: Board,
    window_s: int,
    windows: int,
    seed: Sequence[int],
) -> tuple[Trace, int]:
    """The scaled trace and the second at which the run begins.

    `seed` is for generated arrivals. Tenants need different seeds.
    """
    offset_s = source.offset_s(windows, window_s)
    run = slice(offset_s, offset_s + windows * window_s)
    if source.loaded is None:
        return _generated(source, service, board, run, seed), offset_s
    if source.loaded.seconds < run.stop:
        _refuse_short(source, source.loaded, window_s, windows)
    return _scaled(source, source.loaded, service, board, run), offset_s


def _require_generator(entry: ArrivalsEntry, location: Location) -> None:
    if entry.generator is None:
        refuse(location, "neither trace nor generator is given", "give one of them")
    if entry.mean_rps is None:
        refuse(
            (*location, "mean_rps"),
            "the key is missing beside generator",
            "give the mean in requests per second, a number above 0",
        )
    if "scale" in entry.model_fields_set:
        refuse((*location, "scale"), "this goes with trace", "raise or lower mean_rps")


def _require_trace(entry: ArrivalsEntry, location: Location) -> None:
    if entry.generator is not None:
        refuse((*location, "generator"), "trace is given as well", "keep one of them")
    if entry.mean_rps is not None:
        refuse((*location, "mean_rps"), "this goes with generator", "give scale beside trace")


def _loaded(path: str, location: Location, folder: Path) -> Trace:
    file = beside(folder, path, location)
    try:
        return cached_trace(file)
    except InputError as error:
        raise InputError(f"{key_path(location)}: {error}") from error


def cached_trace(file: Path) -> Trace:
    """The trace in a file, which is read again only if it has changed.

    A trace may be large, and a comparison reads its scenario many times.
    """
    state = file.stat() if file.is_file() else None
    return _loaded_once(file, state.st_mtime_ns if state else 0, state.st_size if state else 0)


@lru_cache(maxsize=8)
def _loaded_once(file: Path, _changed_ns: int, _size: int) -> Trace:
    return load_trace(file)


def _generated(
    source: ArrivalSource, service: Service, board: Board, run: slice, seed: Sequence[int]
) -> Trace:
    kind, mean_rps = source.entry.generator, source.entry.mean_rps
    assert kind is not None
    assert mean_rps is not None
    most = highest_rps(service, board)
    if mean_rps > most and not source.entry.overload:
        _refuse_rate((*source.location, "mean_rps"), mean_rps, most, board, most)
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    try:
        trace = generate(kind, mean_rps=mean_rps, seconds=run.stop, seed=number)
    except InputError as error:
        reason = str(error).removeprefix("arrivals: ")
        raise InputError(f"{key_path((*source.location, 'generator'))}: {reason}") from error
    # Scale to the requested mean within the run. The factor is limited, so that a run that is
    # nearly empty by chance stays nearly empty.
    factor = mean_rps / max(float(trace.counts[run].mean()), 1e-9)
    return trace.scaled(min(max(factor, 0.5), 2.0))


def _scaled(
    source: ArrivalSource, trace: Trace, service: Service, board: Board, run: slice
) -> Trace:
    scale, location = source.entry.scale, (*source.location, "scale")
    mean_rps = float(trace.counts[run].mean())
    most = highest_rps(service, board)
    if mean_rps * scale > most and not source.entry.overload:
        _refuse_rate(location, mean_rps * scale, most, board, most / mean_rps)
    scaled = trace.scaled(scale)
    if not scaled.counts[run].any():
        refuse(
            location,
            f"at {scale:g} no request comes from second {run.start} to {run.stop}",
            "raise it or begin elsewhere with offset_s",
        )
    return scaled


def _refuse_rate(
    location: Location, mean_rps: float, most_rps: float, board: Board, largest: float
) -> NoReturn:
    refuse(
        location,
        f"{mean_rps:.6g} requests per second on average are more than the {most_rps:.6g} that all "
        f"of {board.name} can answer in time for this tenant",
        f"set overload: true or give at most {_rounded_down(largest):.4g}",
    )


def _rounded_down(value: float) -> float:
    if value <= 0:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return math.floor(value / digit) * digit


def _refuse_short(source: ArrivalSource, trace: Trace, window_s: int, windows: int) -> NoReturn:
    offset_s = source.entry.offset_s or 0
    fit = max(0, trace.seconds - offset_s) // window_s
    after = f" after offset_s {offset_s}" if offset_s else ""
    refuse(
        (*source.location, "trace"),
        f"its {trace.seconds} s have no room for {windows} windows of {window_s} s{after}",
        f"ask for at most {fit} windows" if fit else "give a longer trace or a shorter window_s",
    )


_SPLIT, _TIMES, _DRAWS = range(3)
"""Independent streams of random numbers."""


class TenantArrivals:
    """A tenant's requests, per slot and individually."""

    def __init__(self, trace: Trace, slot_s: float, seed: int, tenant: int) -> None:
        self._key = (seed, tenant)
        self.grain_s = min(1.0, slot_s)
        self._grains = self._split(trace, round(1 / self.grain_s))
        self._per_slot = round(slot_s / self.grain_s)

    def slots(self, start_s: float, end_s: float) -> NDArray[np.float64]:
        """Requests per slot from `start_s` to `end_s`, both on a slot boundary.

        A partial slot is cut.
        """
        grains = self._between(start_s, end_s)
        whole = len(grains) // self._per_slot * self._per_slot
        slots: NDArray[np.int64] = grains[:whole].reshape(-1, self._per_slot).sum(axis=1)
        return slots.astype(np.float64)

    def times(self, start_s: float, end_s: float) -> NDArray[np.float64]:
        """Sorted arrival times of the requests from `start_s` to `end_s`."""
        grains = self._between(start_s, end_s)
        random = self._random(_TIMES, start_s)
        gaps = random.standard_exponential(int(grains.sum()) + len(grains))
        return spread(grains, gaps, start_s, self.grain_s)

    def draws(self, start_s: float, requests: int) -> NDArray[np.float64]:
        """One random number per request from `start_s` on.

        The answer is right if it is below the accuracy.
        """
        return self._random(_DRAWS, start_s).random(requests)

    def _between(self, start_s: float, end_s: float) -> NDArray[np.int64]:
        return self._grains[round(start_s / self.grain_s) : round(end_s / self.grain_s)]

    def _split(self, trace: Trace, parts: int) -> NDArray[np.int64]:
        if parts == 1:
            return trace.counts
        shares = np.full(parts, 1 / parts)
        split: NDArray[np.int64] = self._random(_SPLIT, 0).multinomial(trace.counts, shares)
        return split.reshape(-1)

    def _random(self, stream: int, start_s: float) -> np.random.Generator:
        return np.random.default_rng([*self._key, stream, round(start_s / self.grain_s)])


def spread(
    counts: NDArray[np.int64], gaps: NDArray[np.float64], start_s: float, grain_s: float
) -> NDArray[np.float64]:
    """Sorted uniform times of requests.

    The n requests of a grain have n + 1 exponential gaps, scaled to its length.
    """
    times = np.empty(counts.sum(), dtype=np.float64)
    at = gap = 0
    for grain, count in enumerate(counts):
        passed = np.cumsum(gaps[gap : gap + count + 1])
        begin = start_s + grain * grain_s
        times[at : at + count] = begin + passed[:-1] / passed[-1] * grain_s
        at += count
        gap += count + 1
    return times
