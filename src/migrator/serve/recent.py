"""The inputs of the last answered requests, so that feedback needs no more than their id."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 100_000
"""Entries, whatever their size: small inputs have their own cost."""


ENTRY_BYTES = 700
"""What an entry takes beside its arrays' contents: its id, three objects and its place."""


@dataclass(frozen=True, eq=False, slots=True)
class Remembered:
    """An answered request."""

    inputs: NDArray[Any]
    predicted: NDArray[np.int64]

    @property
    def held_bytes(self) -> int:
        """Memory that it keeps in use."""
        return self.inputs.nbytes + self.predicted.nbytes + ENTRY_BYTES


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
            self._bytes -= self._kept.pop(request_id).held_bytes
        self._kept[request_id] = Remembered(_owned(inputs), _owned(predicted))
        self._bytes += self._kept[request_id].held_bytes
        while self._bytes > self._limit_bytes or len(self._kept) > KEPT:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.held_bytes

    def find(self, request_id: str) -> Remembered | None:
        """The request, if it is not too old."""
        return self._kept.get(request_id)


def _owned(values: NDArray[Any]) -> NDArray[Any]:
    """A view would keep all of what it is a part of: a whole request body, or a batch."""
    return values if values.flags.owndata else values.copy()
