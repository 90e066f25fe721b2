"""What a whole board could do for one tenant: the measure of loads."""

from __future__ import annotations

from migrator.core.catalogue import Board
from migrator.core.placement import multisets
from migrator.core.service import Service


def highest_rps(service: Service, board: Board) -> float:
    """Requests per second with the board to itself, cut up as suits the tenant best."""
    capability = service.capabilities_rps(board)
    return max(
        sum(capability[gpcs] for gpcs in sizes)
        for sizes in multisets(board)
        if sizes[0] >= service.min_gpcs
    )
