"""The user's folders for state and caches.

Uses only the standard library, because it also runs on hosts that have nothing but torch.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path

from migrator.core.errors import InputError

CERTIFICATES = "certificates.pem"
"""In a daemon's folder: its certificates in use, which verbs and agents of this machine trust."""


def state_folder(given: Path | None = None) -> Path:
    """`given`, else MIGRATOR_STATE, else the user's state folder. Created if it is missing."""
    folder = given or _default_state_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: the state folder cannot be made ({error.strerror}); name another one "
            "with --state or in MIGRATOR_STATE"
        ) from error
    return folder


def state_option(folder: Path) -> str:
    """The option that names a state folder in a command; empty for the default one."""
    with suppress(RuntimeError):  # there is no home
        if folder.absolute() == _default_state_folder().absolute():
            return ""
    return f" --state {shlex.quote(str(folder.absolute()))}"


def _default_state_folder() -> Path:
    if given := os.environ.get("MIGRATOR_STATE"):
        return Path(given)
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "migrator"


def live_folder(state: Path, scenario: str) -> Path:
    """The folder of the daemon that serves a scenario."""
    return state / "live" / scenario


def private_folder(folder: Path) -> Path:
    """Create the folder if it is missing. InputError if other users could have put files there.

    A daemon trusts the files in its folder: jobs name code to run, settings name processes.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise InputError(
            f"{folder}: the folder cannot be made ({error.strerror}); name another state folder in "
            "MIGRATOR_STATE"
        ) from error
    if os.geteuid() not in (0, status.st_uid) or status.st_mode & 0o002:
        raise InputError(
            f"{folder}: other users can write this folder; make it yours alone (chown, chmod 700), "
            "or name another state folder in MIGRATOR_STATE"
        )
    return folder


def cache_folder(kind: str) -> Path:
    """The folder for one kind of files that can be made again; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "migrator" / kind
