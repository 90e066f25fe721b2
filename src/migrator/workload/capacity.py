"""What a board can serve of a tenant."""

from __future__ import annotations

from collections.abc import Iterable

from migrator.core.catalogue import Board, multisets
from migrator.core.profiles import Service


def highest_rps(service: Service, board: Board) -> float:
    """Highest rate in requests per second at which the whole board can serve the tenant."""
    capability = service.capabilities_rps(board)
    return max(
        sum(capability[gpcs] for gpcs in sizes)
        for sizes in multisets(board)
        if sizes[0] >= service.min_gpcs
    )


def least_gpcs(service: Service, board: Board) -> int | None:
    """The smallest instance that satisfies `min_gpcs` and can serve the tenant."""
    able = service.capabilities_rps(board)
    return min((g for g, rps in able.items() if rps > 0 and g >= service.min_gpcs), default=None)


def fit_together(sizes: Iterable[int], board: Board) -> bool:
    """Whether the board has room for instances of at least these sizes at the same time."""
    wanted = sorted(sizes, reverse=True)
    return any(
        len(wanted) <= len(there)
        and all(least <= size for least, size in zip(wanted, there, strict=False))
        for there in multisets(board)
    )
