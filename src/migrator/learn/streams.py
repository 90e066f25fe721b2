"""Random streams: one seed gives every purpose numbers of its own, here named in one place."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """What random numbers are drawn for; a changed number changes every figure."""

    SAMPLES_LIMITED = 1
    ORDER_OF_CLASSES = 2
    MEMORY = 3
    MADE_UP_PICTURES = 4
    EPOCH = 5
    ESTIMATION = 6


def drawn(seed: int, stream: Stream, *more: int) -> np.random.Generator:
    """The stream of this seed; `more` tells its parts apart, such as epochs."""
    return np.random.default_rng((seed, stream.value, *more))
