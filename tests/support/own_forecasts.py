"""A forecaster of one's own that fails on demand: a file, named in the environment, says so."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE = "PYTHON_RATE_FILE"


def as_written(_: NDArray[np.float64], slots: int, __: int) -> NDArray[np.float64]:
    """The number in the file, in every slot."""
    return np.full(slots, float(Path(os.environ[RATE]).read_text(encoding="utf-8")))
