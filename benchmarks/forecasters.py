"""Measure the forecasters: `MIGRATOR_DATA=FOLDER python -m benchmarks.forecasters [--json]`.

Every `second,count` CSV file in the folder is walked window by window; each forecaster sees
what came before the window, at most `--history` slots of it, and is held against what came.
`--skip 0.6 --history 0` walks what `migrator forecast evaluate` does.

wape      mean absolute error of the mean, over the mean (predicting zero gives 1)
bias      mean forecast over mean received, less 1
coverage  part of the slots inside the nominal 80% interval (`forecast/evaluation.py`)
above     part above it; below: part below it
pinball   mean pinball loss of the 10%, 50% and 90% quantiles, over the mean
ms        one forecast, median

Where few requests come in a slot, coverage is lumpy: a whole number lies in the interval or
not, and many slots share it. `empty` says in how many slots nothing came.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Row
from benchmarks.tables import table
from migrator.core.errors import InputError
from migrator.forecast.evaluation import interval_of, origins_of, over_mean, pinball, quantiles_of
from migrator.forecast.forecaster import Counts, Forecaster
from migrator.forecast.selection import forecaster, forecasters

_ROUNDING = 1e-9


def main() -> int:
    """Measure what is asked for and print it."""
    options = _options()
    try:
        rows = _rows(options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(rows, indent=1) if options.json else "\n".join(_shown(rows)))
    return 0


def _rows(options: argparse.Namespace) -> list[Row]:
    """One per trace and forecaster."""
    traces = _traces(2 * options.window)
    chosen = [forecaster(name) for name in options.forecasters or _quick()]
    rows: list[Row] = []
    for name, counts in traces.items():
        for method in chosen:
            first = max(options.window, round(options.skip * len(counts)))
            figures = _measure(method, counts, first, options.window, options.history)
            rows.append({"trace": name, "forecaster": method.name, **figures})
    return rows


def _quick() -> list[str]:
    """All but the one that trains: a history that loses its beginning is a new one to it.

    `migrator forecast evaluate` measures that one.
    """
    return [name for name in forecasters() if name != "informer"]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the forecasters on real traces.")
    add = parser.add_argument
    add("--window", type=int, default=200, help="slots of a window (default 200)")
    add("--history", type=int, default=3000, help="slots seen at most, 0: all (default 3000)")
    add("--skip", type=float, default=0.0, help="part of a trace that is history only (default 0)")
    add("--forecasters", nargs="+", metavar="NAME", help="these only")
    add("--json", action="store_true", help="rows as JSON instead of a table")
    return parser.parse_args()


def _traces(slots: int) -> dict[str, Counts]:
    """Every trace of at least `slots` slots in the folder that MIGRATOR_DATA names."""
    folder = os.environ.get("MIGRATOR_DATA")
    if not folder:
        raise InputError("MIGRATOR_DATA: not set; let it name a folder of second,count CSV files")
    files = sorted(Path(folder).glob("*.csv"))
    if not files:
        raise InputError(f"MIGRATOR_DATA: no CSV file in {folder}; name a folder that has some")
    traces = {path.stem: _counts(path) for path in files}
    for name, counts in traces.items():
        if len(counts) < slots:
            raise InputError(f"{name}: {len(counts)} slots; give at least two windows, {slots}")
    return traces


def _counts(path: Path) -> Counts:
    try:
        counts: Counts = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)[:, 1]
    except (ValueError, IndexError) as error:
        raise InputError(
            f"{path.name}: cannot be read; give rows of second,count under a header"
        ) from error
    return counts


def _measure(forecaster: Forecaster, counts: Counts, first: int, window: int, history: int) -> Row:
    """What is said of each window from `first` on against what came in it."""
    came, ahead, taken_ms = [], [], []
    for start in origins_of(first, len(counts), window):
        seen = counts[max(0, start - history) if history else 0 : start].copy()
        began = time.perf_counter()
        ahead.append(forecaster.ahead(seen, window, window))
        taken_ms.append(1e3 * (time.perf_counter() - began))
        came.append(counts[start : start + window])
    if not came:
        raise InputError("--skip: leaves no window to walk; give a smaller part")
    figures = _figures(np.concatenate(came), np.concatenate(ahead, axis=1))
    return {"windows": len(came), **figures, "ms": float(np.median(taken_ms))}


def _figures(came: Counts, ahead: NDArray[np.float64]) -> Row:
    """The columns, from every slot of every window."""
    low, high = interval_of(ahead)
    above = float((came > high + _ROUNDING).mean())
    below = float((came < low - _ROUNDING).mean())
    mean, rate = ahead.mean(axis=0), float(came.mean())
    bias = over_mean(float(mean.mean()), rate)
    return {
        "mean": rate,
        "empty": float((came == 0).mean()),
        "wape": over_mean(float(np.abs(came - mean).mean()), rate),
        "bias": None if bias is None else bias - 1,
        "coverage": 1 - above - below,
        "above": above,
        "below": below,
        "pinball": over_mean(float(pinball(came, quantiles_of(ahead)).mean()), rate),
    }


def _shown(rows: list[Row]) -> list[str]:
    """The rows as a table."""
    return table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
