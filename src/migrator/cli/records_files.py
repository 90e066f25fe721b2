"""Finds the records of live runs."""

from __future__ import annotations

from pathlib import Path

from migrator.core.errors import InputError
from migrator.io.folders import state_folder

RECORDS = "records.db"


def records_file(state: Path | None, scenario: str | None) -> Path:
    """The records of a scenario in the state folder, by default the newest."""
    folder = state_folder(state) / "live"
    files = {path.parent.name: path for path in folder.glob(f"*/{RECORDS}")}
    if not files:
        raise InputError(
            f"{folder}: nothing was served from this state folder; start `migrator serve "
            "SCENARIO`, or name another one with --state"
        )
    if scenario is None:
        return max(files.values(), key=_written_s)
    if scenario not in files:
        raise InputError(
            f"--scenario: nothing called {scenario!r} was served from {folder.parent}; use "
            f"{' or '.join(sorted(files))}"
        )
    return files[scenario]


def _written_s(path: Path) -> float:
    """When the file or its write-ahead log was last written."""
    log = path.with_name(f"{path.name}-wal")
    return max(file.stat().st_mtime for file in (path, log) if file.exists())


def records_in(folder: Path) -> Path:
    """The records in a folder, which may be a state folder."""
    inside = folder / RECORDS
    return inside if inside.exists() else records_file(folder, None)


def beside_file(given: str, own: Path) -> tuple[Path, int | None]:
    """The file and the run that `--beside` names: a run of the same file, another file, or its
    folder."""
    path = Path(given)
    if given.isdecimal():
        return own, int(given)
    if path.is_dir():
        return records_in(path), None
    if not path.exists():
        raise InputError(
            f"--beside: there is no {given}; give the number of a run, a {RECORDS}, or the state "
            "folder of another run"
        )
    return path, None
