"""A folder that one run has to itself: a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from migrator.core.errors import InputError

_LOCK = "lock"


class Claim:
    """The lock on a folder; held until it is let go, or the process ends."""

    def __init__(self, folder: Path) -> None:
        """InputError where another run has the folder, or it cannot be made."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InputError(
                f"--checkpoint: {folder} cannot be created or written "
                f"({error.strerror or error}); name another folder"
            ) from error
        self.let_go = weakref.finalize(self, os.close, descriptor)
        """Also called when nobody holds the claim any more."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.let_go()
            raise InputError(
                f"--checkpoint: another run is using {folder}; wait for it or name another folder"
            ) from error
