"""Arrivals of experiments: real traces where there are some, and places spread over them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.core.scenario import Trace
from migrator.workload.arrivals import HISTORY_S
from migrator.workload.traces.formats import load_trace
from migrator.workload.traces.generator import KINDS, generate, real_file
from migrator.workload.workloads import WINDOW_S

Pair = tuple[str, str]
"""Kinds of arrivals of two tenants."""


def offset(trace: Trace, number: int, of: int, windows: int = 1) -> int:
    """Start of window `number`: the first after some history, the last at the trace's end."""
    last = trace.seconds - windows * WINDOW_S
    if last < HISTORY_S:
        raise InputError(
            f"{trace.name}: its {trace.seconds} s have no room for {windows} windows of "
            f"{WINDOW_S} s after {HISTORY_S} s of history; give a longer trace"
        )
    return HISTORY_S + number * (last - HISTORY_S) // max(1, of - 1)


def separate_offsets(trace: Trace, windows: int) -> tuple[int, ...]:
    """Starts of all runs of `windows` windows that do not overlap, the first after `HISTORY_S`."""
    run_s = windows * WINDOW_S
    return tuple(range(HISTORY_S, trace.seconds - run_s + 1, run_s))


def at_rate(
    trace: Trace, mean_rps: float, begin_s: int, windows: int, spread_s: int | None, seed: int
) -> Trace:
    """The trace with this mean rate in the run that begins at `begin_s`.

    `spread_s`: how late the copies are that are added up for it; None: its rates are multiplied.
    """
    run = slice(begin_s, begin_s + windows * WINDOW_S)

    def mean(counts: NDArray[np.int64]) -> float:
        found_rps = float(counts[run].mean())
        if found_rps == 0:
            raise InputError(
                f"{trace.name}: nothing comes in {windows} windows from second {begin_s}; give "
                "the whole trace"
            )
        return found_rps

    factor = mean_rps / mean(trace.counts)
    if spread_s is None:
        return trace.scaled(factor)
    # late copies bring what came before the run, and take what comes at its end
    factor *= mean_rps / mean(trace.superposed(factor, spread_s, seed).counts)
    return trace.superposed(factor, spread_s, seed)


@lru_cache(maxsize=8)
def arrivals(kind: str, data: Path | None, seed: int) -> Trace:
    """The real trace if `data` has it, else a generated one of the same length and mean rate."""
    path = None if data is None else real_file(kind, data)
    if path is None:
        measured = KINDS[kind].measured
        return generate(kind, mean_rps=measured.mean_rps, seconds=measured.seconds, seed=seed)
    return load_trace(path)


def generated_kinds(pairs: Iterable[Pair], data: Path | None) -> tuple[str, ...]:
    """Kinds of these pairs that are generated because `data` does not have them."""
    kinds = dict.fromkeys(kind for pair in pairs for kind in pair)
    return tuple(kind for kind in kinds if data is None or real_file(kind, data) is None)
