"""A file of records that the page shows, and what it says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from migrator.core.catalogue import Board, board
from migrator.core.errors import MigratorError
from migrator.records.rows import RunRow
from migrator.records.store import read_runs
from migrator.report.plan_palette import shades

_MOST_RUNS = 50


@dataclass(frozen=True)
class Source:
    """Records by the name that people know them by."""

    name: str
    path: Path


def told(source: Source) -> Mapping[str, Any]:
    """The source with its last runs, newest last."""
    runs = read_runs(source.path)[-_MOST_RUNS:]
    return {"name": source.name, "runs": [_run(each) for each in runs]}


def _run(row: RunRow) -> Mapping[str, Any]:
    tenants = [each for each in row.about.get("tenants", ()) if isinstance(each, str)]
    return {
        **{key: value for key, value in asdict(row).items() if key not in ("about", "pid")},
        "window_s": row.about.get("window_s", 200.0),
        "slot_s": row.about.get("slot_s", 1.0),
        "tenants": tenants,
        "board_slices": _slices(row.board),
    }


def _slices(name: str) -> Mapping[str, Any]:
    """Of the board: its slices, and how many of them an instance of each size takes."""
    known = _board(name)
    if known is None:
        return {"memory": 8, "compute": 7, "widths": {}}
    return {
        "memory": known.memory_slices,
        "compute": known.compute_slices,
        "widths": {gpcs: each.memory_slices for gpcs, each in known.plain_profiles.items()},
    }


def _board(name: str) -> Board | None:
    try:
        return board(name)
    except MigratorError:
        return None  # records of a board that only another version knows


def palette() -> list[Mapping[str, str]]:
    """The tones of tenants in their order."""
    return [asdict(each) for each in shades(7)]
