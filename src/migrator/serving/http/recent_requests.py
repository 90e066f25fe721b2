"""The last answered requests, which feedback can name by their id."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.serving.queue import Second

MAX_RECENT = 100_000
"""Requests that are kept, whatever their size: small ones have a cost of their own."""
ENTRY_BYTES = 700
"""Memory of an entry beside the contents of its arrays."""


class RecentRequest(NamedTuple):
    """An answered request."""

    inputs: NDArray[Any]
    predicted: list[int]
    """The label of each row."""
    held_bytes: int
    second: Second | None
    """In which it arrived, for its label; None if the answer was late."""


class RecentRequests:
    """The last answered requests of a tenant by id, within a limit of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes, self._bytes = limit_bytes, 0
        self._kept: OrderedDict[str, RecentRequest] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(
        self,
        request_id: str,
        inputs: NDArray[Any],
        predicted: list[int],
        second: Second | None = None,
    ) -> None:
        """Keep a request, and drop the oldest ones beyond the limit."""
        kept = self._kept
        if request_id in kept:
            self._bytes -= kept.pop(request_id).held_bytes
        if isinstance(inputs.base, np.ndarray):
            inputs = inputs.copy()  # a view would keep the whole array that it is a part of
        held_bytes = inputs.nbytes + 8 * len(predicted) + ENTRY_BYTES
        kept[request_id] = RecentRequest(inputs, predicted, held_bytes, second)
        self._bytes += held_bytes
        while self._bytes > self._limit_bytes or len(kept) > MAX_RECENT:
            self._bytes -= kept.popitem(last=False)[1].held_bytes

    def find(self, request_id: str) -> RecentRequest | None:
        return self._kept.get(request_id)
