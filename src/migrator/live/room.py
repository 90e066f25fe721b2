"""Whether a GPU has room for one more tenant."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.profiles import Service
from migrator.io.strict import listed
from migrator.workload.capacity import fit_together, least_gpcs


class NoRoomError(InputError):
    """The tenant does not fit beside the others; the message says which sizes would do."""


def require_room(
    service: Service, others: Sequence[Service], board: Board, memory_mib: float | None = None
) -> None:
    """Raise NoRoomError unless every tenant can have an instance that serves it.

    `memory_mib`: of the GPU, where the processes of all tenants share it.
    """
    least = {other.tenant: least_gpcs(other, board) or other.min_gpcs for other in others}
    able = service.capabilities_rps(board)
    usable = [gpcs for gpcs, rps in able.items() if rps > 0 and gpcs >= service.min_gpcs]
    free = [gpcs for gpcs in board.sizes if fit_together([*least.values(), gpcs], board)]
    if not any(gpcs in free for gpcs in usable):
        held = listed([f"{name} ({gpcs}g)" for name, gpcs in least.items()], last="and")
        room = f"only {_sizes(free)}" if free else "no instance"
        raise NoRoomError(
            f"{service.tenant}: it needs an instance of {_sizes(usable)} by min_gpcs, memory and "
            f"objective, and beside the smallest ones of {held} {board.name} has room for {room}; "
            f"{_remedy(min(usable), least, board)}, or use a smaller model"
        )
    if memory_mib is not None and board.is_of_shares:
        left_mib = memory_mib - sum(e.profile.held_by_worker_mib(e.batch) for e in others)
        needed_mib = service.profile.held_by_worker_mib(service.batch)
        if needed_mib > left_mib:
            raise NoRoomError(
                f"{service.tenant}: its worker holds {needed_mib:,.0f} MiB, and beside those of "
                f"the other tenants {board.name} has {max(0.0, left_mib):,.0f} MiB left; use a "
                "smaller batch or model, or remove a tenant"
            )


def _remedy(needed: int, least: dict[str, int], board: Board) -> str:
    """Which tenants make room if one of them is removed."""
    enough = [
        name
        for name in least
        if fit_together([needed, *(gpcs for other, gpcs in least.items() if other != name)], board)
    ]
    return f"remove {listed(enough)}" if enough else "remove several tenants"


def _sizes(sizes: Sequence[int]) -> str:
    return listed([f"{gpcs}g" for gpcs in sorted(sizes)])
