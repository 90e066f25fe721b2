"""Compiled kernels: numba's njit with its cache on disk, keeping the function's type.

numba looks only at the file of the kernel that is called, not at those of the kernels it
calls. After an update that could leave old machine code in use, so the cache has one folder
per state of all kernel sources together. numba unpickles what it finds there, so a folder is used
only where no other user can write; without such a folder every process compiles in memory.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import config, njit

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])
_ENTRY: dict[str, Any] = {}
_INNER: dict[str, Any] = {}
"""Options of numba for kernels that Python calls, and for those that only other kernels call."""
_ENTRY_POINTS: dict[Any, Any] = {}
"""Machine code of kernels that are compiled for one signature."""
IS_TRIED = numba.__version__.startswith("0.68.")
"""Whether `compiler`, which uses parts of numba that may change, was tried with this version. Any
other version compiles as it would by itself, which takes longer, once."""
if IS_TRIED:
    from migrator.plan.compiler import EntryCompiler, InnerCompiler

    # references to arrays are not counted: that would be slow to compile and to run
    _SETTLED = {"no_cfunc_wrapper": True, "_nrt": False}
    _ENTRY = {"pipeline_class": EntryCompiler, **_SETTLED}
    _INNER = {"pipeline_class": InnerCompiler, **_SETTLED, "no_cpython_wrapper": True}


def integer(value: int) -> int:
    """A constant for variables of kernels, and for arguments that one kernel hands to another.

    numba gives a plain one a type of its own: a variable would have two types, and the kernel
    that gets it would be compiled once more.
    """
    return cast(int, np.int64(value))


ZERO = integer(0)


def compiled(kernel: _Kernel) -> _Kernel:
    """Compile `kernel` on its first call with new argument types; later processes reuse it.

    Kernels make no arrays: the caller hands them over.
    """
    make = partial(njit, **_ENTRY)
    folder = _cache_folder()
    if folder is None:
        return cast(_Kernel, make()(kernel))
    settings = vars(config)  # numba reads the folder here, once: other kernels keep theirs
    before = settings["CACHE_DIR"]
    settings["CACHE_DIR"] = str(folder)
    try:
        return cast(_Kernel, make(cache=True)(kernel))
    finally:
        settings["CACHE_DIR"] = before


def entry(kernel: _Kernel) -> _Kernel:
    """The machine code of a kernel that is compiled for one signature, else the kernel.

    For calls in a loop: numba looks at the types of all arguments of a call, which takes longer
    than many kernels run. Here they must be those of the signature: another type of the same size
    would be read as if it were the right one, so arrays for kernels are made with their dtype.
    """
    overloads = getattr(kernel, "overloads", {})
    if not IS_TRIED or len(overloads) != 1:
        return kernel
    if kernel not in _ENTRY_POINTS:  # looking it up there takes longer: numba hashes all types
        (_ENTRY_POINTS[kernel],) = (each.entry_point for each in overloads.values())
    return cast(_Kernel, _ENTRY_POINTS[kernel])


def compiled_inner(kernel: _Kernel) -> _Kernel:
    """Compile a kernel that only other kernels call.

    Python must not call it: it has no machine code and no place in the cache, as its code is part
    of theirs.
    """
    return cast(_Kernel, njit(**_INNER)(kernel))


def has_cache() -> bool:
    """Whether kernels are kept on disk for other processes."""
    return _cache_folder() is not None


def is_compiled(what: str) -> bool:
    """Whether an earlier process has compiled all kernels of `what` for this installation."""
    folder = _cache_folder()
    return folder is not None and (folder / f"{what}.compiled").exists()


def note_compiled(what: str) -> None:
    """Note that all kernels of `what` are compiled."""
    folder = _cache_folder()
    if folder is not None:
        with suppress(OSError):  # a full disk: the next process asks numba's cache again
            (folder / f"{what}.compiled").touch()


@cache
def _cache_folder() -> Path | None:
    """Beside the sources, else in the user's cache, else a temporary one; None: none is safe."""
    here = Path(__file__).parent
    # another numba or Python finds nothing in the cache, so it must not find `is_compiled` either
    about = f"{numba.__version__} {sys.version} {vars(config)['BOUNDSCHECK']}"
    sources = hashlib.sha256(about.encode())
    own = [here / "compiler.py", Path(__file__)]
    for path in sorted((*own, *(here / "exact").glob("*.py"), *(here / "survivors").glob("*.py"))):
        sources.update(path.read_bytes())
    name = f"kernels-{sources.hexdigest()[:16]}"
    homes = [
        Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "migrator",
        Path(tempfile.gettempdir()) / f"migrator-{os.getuid()}",
    ]
    # a user that can write the folders above the sources can also change the sources
    beside = _private(here / "__pycache__" / name)
    return beside or next(filter(None, (_private(each / name, homes=True) for each in homes)), None)


def _private(folder: Path, *, homes: bool = False) -> Path | None:
    """The folder, made where it is missing, if this user alone can write it; symlinks resolved.

    `homes`: the folders above it must be safe as well: no other user can replace it by another.
    """
    try:
        folder = folder.expanduser()
        if homes:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found, real = folder.lstat(), folder.resolve()
        if not stat.S_ISDIR(found.st_mode) or folder.parent.is_symlink():
            return None
        owned = found.st_uid == os.geteuid() and not found.st_mode & 0o022
        safe = owned and (not homes or all(_is_safe(each.stat()) for each in real.parents))
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    return real if safe and os.access(real, os.W_OK) else None


def _is_safe(found: os.stat_result) -> bool:
    """Whether no other user but root can rename what lies in that folder."""
    if found.st_uid not in (0, os.geteuid()):
        return False
    if found.st_mode & stat.S_ISVTX:
        return True
    foreign_group = found.st_mode & 0o020 and found.st_gid not in (0, os.getegid())
    return not found.st_mode & 0o002 and not foreign_group
