"""What goes on while nothing may be changed: everything that serves or warms stays as it is.

A pause may come in the middle of a change. Whoever has nothing at that moment gets back what is
being emptied of it, else what the plan has for it beside all that stays: a pause takes nobody's
last instance away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from migrator.control.timeline import Wanted
from migrator.control.units import Site, State, Unit, fits
from migrator.core.catalogue import Board
from migrator.core.instance import Kind, Task

_SERVES = (State.WARMING, State.READY)
_LEAVES = (State.DRAINING, State.STOPPING)


def standstill(board: Board, units: Collection[Unit], asked: Wanted) -> Mapping[Site, Task]:
    """What serves where from now on; `asked`: what the plan has for this moment."""
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
