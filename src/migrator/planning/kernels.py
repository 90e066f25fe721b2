"""Compiled kernels: numba's `njit`, with machine code kept on disk for later processes.

numba keeps it beside the sources, else in the user's cache folder, or in NUMBA_CACHE_DIR. It
notices a change only in the file of the kernel that Python calls. After a change or an upgrade it
would use old code for the others, or fail to read types that have a new name. So whatever is older
than the newest source of these planners is removed.

Kernels make no arrays: the caller hands them over. So they need no counts of references (`_nrt`);
without those, plans take a quarter to a third less time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core.event import Listener, install_listener
from numba.extending import register_jitable

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])
# numba documents this option for `register_jitable` only, so its version is capped
_NO_REFERENCE_COUNTS: dict[str, Any] = {"_nrt": False}


def compiled(kernel: _Kernel) -> _Kernel:
    """Compile `kernel` on its first call, or load what an earlier process compiled."""
    try:
        cached = njit(cache=True, **_NO_REFERENCE_COUNTS)(kernel)
        if cached is not kernel:  # NUMBA_DISABLE_JIT gives it back
            _remove_outdated(Path(cached.stats.cache_path), kernel.__name__)
        return cast(_Kernel, cached)
    except RuntimeError:  # there is no folder that numba can write: every process compiles
        return cast(_Kernel, njit(**_NO_REFERENCE_COUNTS)(kernel))


def _remove_outdated(folder: Path, kernel: str) -> None:
    """Remove what tells numba of compiled code in `folder` that is older than the sources."""
    for index in folder.glob(f"*.{kernel}-*.nbi"):
        with suppress(OSError):  # of another user, or removed by another process meanwhile
            if index.stat().st_mtime < _newest_source_s():
                index.unlink()


@cache
def _newest_source_s() -> float:
    planning = Path(__file__).parent
    sources = [
        planning / "ranking.py",
        *planning.glob("exact/*.py"),
        *planning.glob("survivors/*.py"),
    ]
    return max(path.stat().st_mtime for path in sources)


def compiled_inner(kernel: _Kernel) -> _Kernel:
    """Compile `kernel` into the kernels that call it. Called from Python, it runs as Python."""
    return register_jitable(**_NO_REFERENCE_COUNTS)(kernel)


class _FirstCompilation(Listener):
    """Prints a line when the first kernel is compiled rather than loaded."""

    def __init__(self) -> None:
        self._is_printed = False

    def on_start(self, _event: Any) -> None:
        if not self._is_printed:
            self._is_printed = True
            notice = (
                "first use of this planner: compiling it, up to a minute, once per installation"
            )
            print(notice, file=sys.stderr, flush=True)

    def on_end(self, _event: Any) -> None:
        """Nothing to print."""


@contextmanager
def announced() -> Iterator[None]:
    """Print a line on standard error if kernels have to be compiled meanwhile."""
    with install_listener("numba:compile", _FirstCompilation()):
        yield
