"""Where drivers and the journal keep what must outlive a process."""

from __future__ import annotations

import os
from pathlib import Path

from migrator.core.errors import InputError


def state_folder(given: Path | None = None) -> Path:
    """`given`, else MIGRATOR_STATE, else the user's state folder; made where it is missing."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = given or Path(os.environ.get("MIGRATOR_STATE") or Path(home) / "migrator")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: the state folder cannot be made ({error.strerror}); name another one in "
            "MIGRATOR_STATE"
        ) from error
    return folder
