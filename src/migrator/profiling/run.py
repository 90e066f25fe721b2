"""The profiler: runs measurements within a time budget and writes a profile file.

An interrupted run can resume. Workers, daemons and instances are always removed.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from migrator.core.errors import InputError, MigratorError
from migrator.io.atomic import write_atomically
from migrator.profiling.entries import VERSION, entry
from migrator.profiling.measurements import Measurement, on_instances
from migrator.profiling.measuring import Measuring, Told, model_of
from migrator.profiling.results import Results
from migrator.profiling.shares import Driver
from migrator.profiling.workers import Json


@dataclass(frozen=True)
class Profiled:
    """Result of a run."""

    profiles: tuple[Json, ...]
    measured: int
    taken_over: int
    """Number of measurements of an interrupted earlier run."""
    left: int
    """Number of measurements without time left, or whose worker was lost."""
    faults: tuple[str, ...]


def require_torch() -> None:
    """Raise InputError with the install command if torch is missing. Imports nothing."""
    for needed in ("torch", "safetensors"):
        if find_spec(needed) is None:
            raise InputError(
                f"models need {needed}, which is not installed: pip install 'migrator[learn]'"
            )


def profile(
    todo: Sequence[Measurement],
    driver: Driver,
    results: Results,
    out: Path,
    *,
    budget_s: float = float("inf"),
    told: Told | None = None,
) -> Profiled:
    """Measure what the results lack, within the time budget, and write the profiles."""
    until_s = time.monotonic() + budget_s
    require_torch()
    todo = todo if driver.coexist else on_instances(todo)
    missing = [each for each in todo if not results.has(each.key)]
    measured = 0
    if missing:
        with _ended_by_signals(), driver.opened():
            measured = Measuring(driver, results, told or _silent, until_s).measure(missing)
    rows = [results.rows[each.key] for each in todo if each.key in results.rows]
    faults = tuple(
        dict.fromkeys(row.get("fault") or row["lost"] for row in rows if "jobs" not in row)
    )
    about = provenance(driver, results)
    models = list(dict.fromkeys(map(model_of, todo)))
    entries = _entries(models, driver, rows, about, results.reconfigurations())
    if not entries:
        raise MigratorError(
            faults[0] if faults else "there was no time to measure anything; raise --budget-s"
        )
    _write(out, about, entries)
    left = sum(not results.has(each.key) for each in todo)
    return Profiled(tuple(entries), measured, len(todo) - len(missing), left, faults)


def provenance(driver: Driver, results: Results) -> Json:
    """Place, software, date and conditions of the measurements.

    Clocks were read before and after.
    """
    about = results.rows.get("about", {})
    return {
        **driver.about(),
        "shares": driver.words,
        "torch": about.get("torch"),
        "cuda": about.get("cuda"),
        **{each: _version(each) for each in ("transformers", "torchvision")},
        "python": sys.version.partition(" ")[0],
        "date": datetime.now(UTC).date().isoformat(),
        "read_before": about.get("read", {}),
        "read_after": results.rows.get("about end", {}).get("read", {}),
    }


def _entries(
    models: list[str],
    driver: Driver,
    rows: list[Json],
    about: Json,
    reconfigurations: list[Json],
) -> list[Json]:
    named = (("driver", "driver_version"), ("torch", "torch"), ("CUDA", "cuda"))
    versions = [f"{word} {about[key]}" for word, key in named if about[key] is not None]
    where = f"{', '.join([about['gpu'], *versions, about['date']])}; {driver.words}"
    found = [entry(model, driver.board, rows, where, reconfigurations) for model in models]
    return [each for each in found if each is not None]


def _write(out: Path, about: Json, entries: list[Json]) -> None:
    """Write one line per profile, short enough to read and to compare by eye."""
    lines = ",\n".join(f"  {json.dumps(each, allow_nan=False)}" for each in entries)
    text = (
        f'{{\n "version": {VERSION},\n "measured": {json.dumps(about, allow_nan=False)},\n'
        f' "profiles": [\n{lines}\n ]\n}}\n'
    )
    with write_atomically(out) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _silent(_measurement: Measurement, _row: Json) -> None:
    """Ignore a measurement, for callers that show no progress."""


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception, so that workers and daemons are stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
