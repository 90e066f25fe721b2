"""Compiled kernels: numba's njit with its cache on disk, keeping the function's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])


def compiled(kernel: _Kernel) -> _Kernel:
    """Compile `kernel` on its first call with new argument types; later processes reuse it."""
    return cast(_Kernel, njit(cache=True)(kernel))
