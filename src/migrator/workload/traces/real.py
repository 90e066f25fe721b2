"""Real traces on this machine: where the environment variable MIGRATOR_DATA points."""

from __future__ import annotations

import os
from pathlib import Path

from migrator.core.registry import pick
from migrator.workload.traces.kinds import KINDS

VARIABLE = "MIGRATOR_DATA"
"""Names a folder that holds the trace files itself or in a subfolder `traces`."""


def real_file(kind: str, folder: Path | None = None) -> Path | None:
    """The trace `kind` was measured on, by default where the variable says; None: not there."""
    name = pick("arrivals", kind, KINDS).file_name
    named = os.environ.get(VARIABLE)
    data = folder or (Path(named) if named else None)
    if not name or data is None:
        return None
    return next((e for e in (data / name, data / "traces" / name) if e.is_file()), None)
