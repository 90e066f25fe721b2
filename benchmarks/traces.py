"""Arrivals of benchmarks: real traces where there are some, and places spread over them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from migrator.core.scenario import Trace
from migrator.workload.arrivals import HISTORY_S
from migrator.workload.traces.formats import load_trace
from migrator.workload.traces.generator import KINDS, generate, real_file
from migrator.workload.workloads import WINDOW_S

Pair = tuple[str, str]
"""Kinds of arrivals of two tenants."""


def separate_offsets(trace: Trace, windows: int) -> tuple[int, ...]:
    """Starts of all runs of `windows` windows that do not overlap, the first after `HISTORY_S`."""
    run_s = windows * WINDOW_S
    return tuple(range(HISTORY_S, trace.seconds - run_s + 1, run_s))


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
