"""The layout while plans are paused: every serving or warming instance stays.

A pause may begin in the middle of a change. A tenant without an instance at that moment keeps the
one that is being drained, or else gets a planned one that fits beside the others. A pause never
takes the last instance of a tenant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from migrator.control.units import Site, State, Unit, Wanted, fits
from migrator.core.catalogue import Board
from migrator.core.instance import Kind, Task

_SERVES = (State.WARMING, State.READY)
_LEAVES = (State.DRAINING, State.STOPPING)


def paused_layout(board: Board, units: Collection[Unit], asked: Wanted) -> Mapping[Site, Task]:
    """The task of each site during the pause. `asked`: the plan's layout at this time."""
    kept = {each.site: each.task for each in units if each.state in _SERVES and each.task}
    trained = [each.site for each in units if each.state is State.TRAINING]
    leaving = {each.site: each.task for each in units if each.state in _LEAVES}
    for offered in (leaving, asked):
        served = {task.tenant for task in kept.values()}
        for site, task in offered.items():
            if task is None or task.kind is Kind.RETRAINING or task.tenant in served:
                continue
            if site not in kept and fits(board, site, (*kept, *trained)):
                kept[site] = task
    return kept
