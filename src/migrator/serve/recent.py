"""The inputs of the last answered requests, so that feedback needs no more than their id."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 100_000
"""Entries, whatever their size: small inputs have their own cost."""


@dataclass(frozen=True, eq=False, slots=True)
class Remembered:
    """An answered request."""

    inputs: NDArray[Any]
    predicted: NDArray[np.int64]


class Recent:
    """The last requests of a tenant by id, as many as fit into so many bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, Remembered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, request_id: str, inputs: NDArray[Any], predicted: NDArray[np.int64]) -> None:
        """Remember it, and forget the oldest where that is too much."""
        if request_id in self._kept:
            self._bytes -= self._kept.pop(request_id).inputs.nbytes
        self._kept[request_id] = Remembered(inputs, predicted)
        self._bytes += inputs.nbytes
        while self._bytes > self._limit_bytes or len(self._kept) > KEPT:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.inputs.nbytes

    def find(self, request_id: str) -> Remembered | None:
        """The request, if it is not too old."""
        return self._kept.get(request_id)
