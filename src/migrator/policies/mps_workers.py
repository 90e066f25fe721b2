"""Converts the percentages of an MPS policy into worker processes.

One process on a large share is slow at small batches, because most SMs idle while one request runs.
Every MPS policy therefore serves a task's share with the number of equal processes that answers
most requests, each of at least `SMALLEST_PERCENT`; INFless chooses its own processes. No peer's
paper forbids it, and with one process per share all peers would lose for a reason unrelated to
their policies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from migrator.core.catalogue import Board
from migrator.core.instance import Kind, Task
from migrator.core.service import Service
from migrator.core.share import Share

SMALLEST_PERCENT = 10.0
_Table = TypeVar("_Table")
MOST = 64
"""Number of cached services."""


def sms_of(board: Board, percent: float) -> float:
    """The number of SMs of a percentage."""
    return board.sms * percent / 100


def processes(service: Service, board: Board, percent: float) -> int:
    """The number of equal processes that answers most requests on `percent` of the SMs."""
    most = max(1, int(percent / SMALLEST_PERCENT + 1e-9))
    return max(
        range(1, most + 1),
        key=lambda n: n * service.capability_rps(sms_of(board, percent / n)),
    )


def capability_rps(service: Service, board: Board, percent: float) -> float:
    """Requests per second on `percent` of the SMs with that many processes."""
    if percent <= 0:
        return 0.0
    n = processes(service, board, percent)
    return n * service.capability_rps(sms_of(board, percent / n))


def serving(service: Service, board: Board, percent: float) -> tuple[Share, ...]:
    """The shares of a tenant's inference on `percent` of the SMs."""
    n = processes(service, board, percent)
    task = Task(service.tenant, Kind.INFERENCE)
    return tuple(Share(number, percent / n, task) for number in range(n))


def training(tenant: str, percent: float) -> Share:
    """The share of a tenant's retraining on `percent` of the SMs."""
    return Share(0, percent, Task(tenant, Kind.RETRAINING))


class PerService(Generic[_Table]):
    """Caches `make(service, board)` while both are the same objects."""

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
