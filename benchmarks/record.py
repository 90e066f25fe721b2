"""A finished study as a JSON file: its rows, and everything needed to judge and repeat them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.measure import Row


@dataclass(frozen=True)
class Record:
    """What was measured, how, where and when."""

    study: str
    command: str
    quick: bool
    measured: str
    """UTC, to the minute."""
    load_average: float
    """Of the last minute, before the study began: what else the machine was doing."""
    machine: dict[str, str]
    settings: dict[str, Any]
    rows: list[Row]

    @property
    def good(self) -> list[Row]:
        """The rows that have figures."""
        return [row for row in self.rows if "error" not in row]

    @property
    def faults(self) -> list[str]:
        """One sentence per row without a plan, or with a certificate that another refuted."""
        return [
            f"{self.study} {where(row)}: {row.get('error') or row['wrong']}"
            for row in self.rows
            if row.get("error") or row.get("wrong")
        ]


def begin_record(study: str, command: str, quick: bool, settings: dict[str, Any]) -> Record:
    """A record without rows yet; the load is that of before the study."""
    return Record(
        study=study,
        command=command,
        quick=quick,
        measured=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        load_average=round(os.getloadavg()[0], 2),
        machine=describe_machine(),
        settings=settings,
        rows=[],
    )


def where(row: Row) -> str:
    """The problem of a row, in the words that make it again."""
    names = ("seed", "tenants", "axis", "at", "run")
    return ", ".join(f"{name} {row[name]}" for name in names if name in row)


def write_record(record: Record, folder: Path, *, partial: bool = False) -> None:
    """STUDY.json, whole or not at all; rows of an unfinished study go to STUDY.json.part."""
    final = folder / f"{record.study}.json"
    part = final.with_suffix(".json.part")
    part.write_text(json.dumps(asdict(record), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if not partial:
        part.replace(final)


def read_records(folder: Path, studies: list[str]) -> dict[str, Record]:
    """The finished studies in the folder."""
    files = {name: folder / f"{name}.json" for name in studies}
    return {
        name: Record(**json.loads(file.read_text(encoding="utf-8")))
        for name, file in files.items()
        if file.exists()
    }
