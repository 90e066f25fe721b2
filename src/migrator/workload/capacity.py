"""The capacity of a whole board for one tenant, to which loads are relative."""

from __future__ import annotations

from migrator.core.catalogue import Board
from migrator.core.placement import multisets
from migrator.core.service import Service


def highest_rps(service: Service, board: Board) -> float:
    """Highest rate in requests per second at which the whole board can serve the tenant."""
    capability = service.capabilities_rps(board)
    return max(
        sum(capability[gpcs] for gpcs in sizes)
        for sizes in multisets(board)
        if sizes[0] >= service.min_gpcs
    )
