"""Real traces on this machine: where the environment variable MIGRATOR_DATA points."""

from __future__ import annotations

import os
from pathlib import Path

from migrator.core.registry import pick
from migrator.traces.kinds import KINDS

VARIABLE = "MIGRATOR_DATA"
"""Names a folder that holds the trace files itself or in a subfolder `traces`."""


def real_file(kind: str) -> Path | None:
    """The trace `kind` was measured on; None where it is not to be had."""
    name = pick("arrivals", kind, KINDS).file_name
    folder = os.environ.get(VARIABLE)
    if not name or not folder:
        return None
    places = (Path(folder) / name, Path(folder) / "traces" / name)
    return next((each for each in places if each.is_file()), None)
