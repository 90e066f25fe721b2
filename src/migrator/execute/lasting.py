"""Who serves on although others are to have its slices: the last of a task whose heir can come.

Its heir is a place that the plan has for the same task and that does not need it to leave. What
else is in the heir's way leaves by itself, or waits for an heir of its own; where these wait in
a circle, one of them has to go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from migrator.core.catalogue import Board
from migrator.core.instance import Task
from migrator.execute.timeline import Wanted
from migrator.execute.units import Site, State, Unit

InTheWay = Callable[[Site, Task], bool]


def lasting(
    board: Board, units: Iterable[Unit], wanted: Wanted, in_the_way: InTheWay
) -> frozenset[Site]:
    """Those units that stay until their heir serves."""
    last = dict(_last(units, in_the_way))
    heirs = {site: heir for site, task in last.items() if (heir := _heir(site, task, wanted))}
    while heirs and not _room(board, heirs, wanted):
        del heirs[max(heirs, key=lambda site: (site.gpcs, site))]
    while circle := _circle(heirs):
        del heirs[min(circle)]
    return frozenset(heirs)


def _last(units: Iterable[Unit], in_the_way: InTheWay) -> Iterator[tuple[Site, Task]]:
    """Of every task that loses all its places the one that would leave last, as they are asked."""
    serving: dict[Task, list[Site]] = {}
    for unit in units:
        if unit.state is State.READY and unit.task is not None:
            serving.setdefault(unit.task, []).append(unit.site)
    for task, sites in serving.items():
        if all(in_the_way(site, task) for site in sites):
            yield max(sites), task


def _heir(site: Site, task: Task, wanted: Wanted) -> Site | None:
    """A place for the same task that can be had while the unit is there."""
    return min((w for w, t in wanted.items() if t == task and not w.mask & site.mask), default=None)


def _room(board: Board, heirs: Mapping[Site, Site], wanted: Wanted) -> bool:
    """Whether the compute slices do for those that stay and all that can come beside them."""
    mask = 0
    for site in heirs:
        mask |= site.mask
    beside = [site.gpcs for site in wanted if not site.mask & mask]
    return sum(beside) + sum(site.gpcs for site in heirs) <= board.compute_slices


def _circle(heirs: Mapping[Site, Site]) -> set[Site]:
    """Units that wait for one another for ever; empty where none do."""
    waits = {
        site: [other for other in heirs if other != site and other.mask & heir.mask]
        for site, heir in heirs.items()
    }
    for site in waits:
        reached = _reached(waits, site)
        if site in reached:
            return {each for each in reached if site in _reached(waits, each)}
    return set()


def _reached(waits: Mapping[Site, list[Site]], site: Site) -> set[Site]:
    reached: set[Site] = set()
    ahead = list(waits[site])
    while ahead:
        other = ahead.pop()
        if other not in reached:
            reached.add(other)
            ahead += waits[other]
    return reached
