"""Compiled kernels: numba's njit with its cache on disk, keeping the function's type.

numba looks only at the file of the kernel that is called, not at those of the kernels it
calls. After an update that could leave old machine code in use, so the cache has one folder
per state of all kernel sources together.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

from numba import config, njit

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])


def compiled(kernel: _Kernel) -> _Kernel:
    """Compile `kernel` on its first call with new argument types; later processes reuse it."""
    settings = vars(config)  # numba reads the folder once, here; nobody else's kernels move
    before = settings["CACHE_DIR"]
    settings["CACHE_DIR"] = _cache_folder() or before
    try:
        return cast(_Kernel, njit(cache=True)(kernel))
    finally:
        settings["CACHE_DIR"] = before


@cache
def _cache_folder() -> str:
    """Beside the sources where that can be written, else in the user's cache."""
    here = Path(__file__).parent
    sources = hashlib.sha256()
    for package in ("exact", "survivors"):
        for path in sorted((here / package).glob("*.py")):
            sources.update(path.read_bytes())
    name = f"kernels-{sources.hexdigest()[:16]}"
    homes = [
        here / "__pycache__",
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "migrator",
        Path(tempfile.gettempdir()) / f"migrator-{os.getuid()}",
    ]
    return next((str(home / name) for home in homes if _writable(home / name)), "")


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
