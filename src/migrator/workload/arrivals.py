"""A tenant's arrivals: loaded or generated, with checks of their length and rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

import numpy as np

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.profiles import Service
from migrator.core.scenario import Trace
from migrator.io.data_file import beside
from migrator.io.strict import Location, key_path, refuse
from migrator.workload.capacity import highest_rps
from migrator.workload.entries import ArrivalsEntry, TenantEntry
from migrator.workload.traces.formats import load_trace
from migrator.workload.traces.generator import generate

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

    `seed` is for generated arrivals and for parts of late copies. Tenants need different seeds.
    """
    offset_s = source.offset_s(windows, window_s)
    run = slice(offset_s, offset_s + windows * window_s)
    if source.loaded is None:
        return _generated(source, service, board, run, seed), offset_s
    if source.loaded.seconds < run.stop:
        _refuse_short(source, source.loaded, window_s, windows)
    return _scaled(source, source.loaded, service, board, run, seed), offset_s


def _require_generator(entry: ArrivalsEntry, location: Location) -> None:
    if entry.generator is None:
        refuse(location, "neither trace nor generator is given", "give one of them")
    if entry.mean_rps is None:
        refuse(
            (*location, "mean_rps"),
            "the key is missing beside generator",
            "give the mean in requests per second, a number above 0",
        )
    for name in ("scale", "spread_s"):
        if name in entry.model_fields_set:
            refuse((*location, name), "this goes with trace", "raise or lower mean_rps")


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
    try:
        trace = generate(kind, mean_rps=mean_rps, seconds=run.stop, seed=_number(seed))
    except InputError as error:
        reason = str(error).removeprefix("arrivals: ")
        raise InputError(f"{key_path((*source.location, 'generator'))}: {reason}") from error
    # Scale to the requested mean within the run. The factor is limited, so that a run that is
    # nearly empty by chance stays nearly empty.
    factor = mean_rps / max(float(trace.counts[run].mean()), 1e-9)
    return trace.scaled(min(max(factor, 0.5), 2.0))


def _number(seed: Sequence[int]) -> int:
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


def _scaled(
    source: ArrivalSource,
    trace: Trace,
    service: Service,
    board: Board,
    run: slice,
    seed: Sequence[int],
) -> Trace:
    scale, location = source.entry.scale, (*source.location, "scale")
    mean_rps = float(trace.counts[run].mean())
    most = highest_rps(service, board)
    if mean_rps * scale > most and not source.entry.overload:
        _refuse_rate(location, mean_rps * scale, most, board, most / mean_rps)
    spread_s = source.entry.spread_s
    scaled = (
        trace.scaled(scale)
        if spread_s is None
        else trace.superposed(scale, spread_s, _number(seed))
    )
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
