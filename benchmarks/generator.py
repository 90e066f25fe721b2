"""Measured against generated arrivals: `python -m benchmarks.generator [--seconds N] [--seed N]`.

Prints the tables of docs/traces.md. How well the next window can be told needs the real traces,
so that table appears only where MIGRATOR_DATA names a folder that holds them.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from benchmarks.trace_statistics import statistics_of
from migrator.workload.traces.formats import load_trace
from migrator.workload.traces.generator import (
    KINDS,
    LAGS_S,
    ArrivalKind,
    Statistics,
    generate,
    real_file,
)

WINDOW_S = 200


def main() -> None:
    """Print what was recorded beside what a long run gives."""
    options = _options()
    lags = "".join(f" {lag} s |" for lag in LAGS_S)
    print(f"| kind | | mean/s | dispersion |{lags} empty seconds |")
    print("|---|---|---|---|" + "---|" * len(LAGS_S) + "---|")
    errors = []
    for kind in KINDS.values():
        counts = _generated(kind, options.seconds, options.seed)
        print(_row(f"`{kind.name}`", "measured" if kind.file_name else "theory", kind.measured))
        print(_row("", "generated", statistics_of(counts)))
        path = real_file(kind.name)
        if path:
            errors.append((kind.name, _wape(load_trace(path).counts), _wape(counts)))
    if errors:
        print("\n| kind | measured | generated |\n|---|---|---|")
        for name, real, made in errors:
            print(f"| `{name}` | {real:.2f} | {made:.2f} |")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=int, default=2_000_000, help="length of a run")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _generated(kind: ArrivalKind, seconds: int, seed: int) -> NDArray[np.int64]:
    mean_rps = kind.measured.mean_rps
    return generate(kind.name, mean_rps=mean_rps, seconds=seconds, seed=seed).counts


def _row(kind: str, source: str, statistics: Statistics) -> str:
    lags = "".join(f" {round(value, 2) + 0.0:.2f} |" for value in statistics.autocorrelation)
    return (
        f"| {kind} | {source} | {statistics.mean_rps:.2f} | {statistics.dispersion:.2f} |{lags}"
        f" {statistics.empty_share:.1%} |"
    )


def _wape(counts: NDArray[np.int64]) -> float:
    """Absolute error per request where each window is told to be like the mean of the last."""
    windows = counts[: len(counts) // WINDOW_S * WINDOW_S].reshape(-1, WINDOW_S)
    level = windows[:-1].mean(axis=1, keepdims=True)
    return float(np.abs(windows[1:] - level).sum() / windows[1:].sum())


if __name__ == "__main__":
    main()
