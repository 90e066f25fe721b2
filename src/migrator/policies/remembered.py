"""What a policy computes once per tenant and needs every second: tables over shares and batches.

A service cannot be hashed (its profile holds mappings), so what was computed is remembered by
its identity, together with the service itself, and forgotten when others have come since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from migrator.core.catalogue import Board
from migrator.core.service import Service

_Table = TypeVar("_Table")

MOST = 64
"""Services remembered at a time."""


class PerService(Generic[_Table]):
    """`make(service, board)`, computed once while they are the same objects."""

    def __init__(self, make: Callable[[Service, Board], _Table]) -> None:
        self._make = make
        self._known: dict[int, tuple[Service, Board, _Table]] = {}

    def __call__(self, service: Service, board: Board) -> _Table:
        """The table of this service on this board."""
        known = self._known.get(id(service))
        if known is None or known[0] is not service or known[1] is not board:
            if len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            known = self._known[id(service)] = service, board, self._make(service, board)
        return known[2]
