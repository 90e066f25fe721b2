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
    predicted: list[int] | None
    """The label of each row; None where the model itself decides what is correct."""
    outputs: NDArray[Any] | None
    """The answer, in that case."""
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
        predicted: list[int] | None,
        second: Second | None = None,
        outputs: NDArray[Any] | None = None,
    ) -> None:
        """Keep a request, and drop the oldest ones beyond the limit."""
        kept = self._kept
        if request_id in kept:
            self._bytes -= kept.pop(request_id).held_bytes
        # a view would keep the whole array that it is a part of
        if isinstance(inputs.base, np.ndarray):
            inputs = inputs.copy()
        if outputs is not None and isinstance(outputs.base, np.ndarray):
            outputs = outputs.copy()
        held_bytes = inputs.nbytes + 8 * len(predicted or ()) + ENTRY_BYTES
        held_bytes += 0 if outputs is None else outputs.nbytes
        kept[request_id] = RecentRequest(inputs, predicted, outputs, held_bytes, second)
        self._bytes += held_bytes
        while self._bytes > self._limit_bytes or len(kept) > MAX_RECENT:
            self._bytes -= kept.popitem(last=False)[1].held_bytes

    def find(self, request_id: str) -> RecentRequest | None:
        return self._kept.get(request_id)
