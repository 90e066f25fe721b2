"""From moments to counts: the last step of every loader, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.core.trace import Trace

LONGEST_S = 10_000_000
"""A longer trace is a mistake (milliseconds taken for seconds, one stray moment)."""
LATEST_S = 10**11
"""Since 1970 this is the year 5138: what is later counts milliseconds."""


def per_second(
    path: Path, seconds: NDArray[np.int64], requests: NDArray[np.int64] | None = None
) -> Trace:
    """A trace whose second 0 is the smallest of `seconds`; each counts one, or its `requests`."""
    if not len(seconds) or (requests is not None and not requests.any()):
        refuse_empty(path)
    first = int(seconds.min())
    length = int(seconds.max()) - first + 1
    check_length(path, length)
    counts = np.zeros(length, dtype=np.int64)
    if requests is None:
        counts += np.bincount(seconds - first, minlength=length)
    else:
        np.add.at(counts, seconds - first, requests)
    return Trace(trace_name(path), counts)


def check_length(path: Path, length_s: int) -> None:
    """InputError where a trace is absurdly long."""
    if length_s > LONGEST_S:
        raise InputError(
            f"{path}: it spans {length_s:,} seconds, more than {LONGEST_S:,}; check that times "
            "are in seconds and that none is far off the others"
        )


def refuse_empty(path: Path) -> NoReturn:
    """InputError: a trace without requests."""
    raise InputError(f"{path}: it has no requests at all; name a trace with at least one")


def trace_name(path: Path) -> str:
    """What a trace read from `path` is called."""
    return Path(path.name.removesuffix(".gz")).stem
