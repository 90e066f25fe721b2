"""The file of measurements, written at once, so that an interrupted run can resume."""

from __future__ import annotations

import json
from pathlib import Path

from migrator.core.errors import InputError
from migrator.profiling.entries import Json

MEASUREMENTS_VERSION = 1
_RECONFIGURATION = "reconfiguration"


def beside(out: Path) -> Path:
    """Path of the measurements that belong to a profile file."""
    return out.with_name(f"{out.name}.measurements.jsonl")


class Results:
    """The file of measurements: a line about the environment, then one line per measurement."""

    def __init__(self, path: Path, about: Json, *, fresh: bool = False) -> None:
        self.path = path
        self.rows: dict[str, Json] = {}
        head = {"version": MEASUREMENTS_VERSION, **about}
        if path.exists() and not fresh:
            self._take_over(head)
        else:
            self._write("w", head)

    def has(self, key: str) -> bool:
        """Whether a measurement is complete. One whose worker was lost is not."""
        return key in self.rows and "lost" not in self.rows[key]

    def add(self, row: Json) -> None:
        """Save a row."""
        self.rows[row["key"]] = row
        self._write("a", row)

    def add_reconfiguration(self, took: Json) -> None:
        """Save how long an instance took to create and destroy, in a row of its own."""
        self.add({"key": f"{_RECONFIGURATION} {len(self.rows)}", **took})

    def reconfigurations(self) -> list[Json]:
        """All measured reconfigurations, of this run and earlier ones."""
        return [row for key, row in self.rows.items() if key.startswith(f"{_RECONFIGURATION} ")]

    def _take_over(self, head: Json) -> None:
        try:
            lines = self.path.read_bytes().decode(errors="replace").splitlines()
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror})") from error
        rows = [row for row in map(_row, lines) if row is not None]
        if not rows or any(rows[0].get(name) != value for name, value in head.items()):
            raise InputError(
                f"{self.path}: holds measurements of another GPU, driver or version; give --fresh "
                "to begin anew, or another --out"
            )
        self.rows = {row["key"]: row for row in rows[1:] if "key" in row}
        # Rewrite the file, because its last line may be incomplete.
        self.path.write_text(
            "".join(f"{json.dumps(row)}\n" for row in [rows[0], *self.rows.values()]),
            encoding="utf-8",
        )

    def _write(self, mode: str, row: Json) -> None:
        try:
            with self.path.open(mode, encoding="utf-8") as file:
                file.write(json.dumps(row, allow_nan=False) + "\n")
        except OSError as error:
            raise InputError(
                f"--out: {self.path} cannot be written ({error.strerror}); name another place"
            ) from error


def _row(line: str) -> Json | None:
    """The row; None for an incomplete line."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row if isinstance(row, dict) else None
