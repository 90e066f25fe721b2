"""A decision over time: the sites it wants in each slot, validated before anything is changed."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from migrator.control.keep_last_instance import Layouts, Transition, find_order, layouts_of
from migrator.control.units import Site, State, Unit, Wanted, fits
from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.problem import Holding, Kind, Task

_TOLERANCE_S = 1e-6
"""Tolerance before a slot begins, because sums of floats are not exact."""


@dataclass(frozen=True)
class Stretch:
    """Consecutive slots with the same layout."""

    begin_s: float
    wanted: Wanted
    mask: int
    """The memory slices of all its sites."""
    retrains: bool
    """Whether it contains a retraining."""


class Timeline:
    """A decision from `begin_s` on. Its last slot stays in force."""

    def __init__(
        self, board: Board, begin_s: float, slots: Sequence[tuple[Holding, ...]], slot_s: float
    ) -> None:
        if not slots or not slot_s > 0:
            raise InputError(
                "decision: has no slots, or slots without length; give what is held from now on"
            )
        self.slot_s = slot_s
        self._stretches: list[Stretch] = []
        number = 0
        for holdings, run in groupby(slots):
            self._add(begin_s + number * slot_s, _wanted(board, holdings))
            number += sum(1 for _ in run)
        self._begins_s = [stretch.begin_s for stretch in self._stretches]

    def at(self, now_s: float) -> Stretch:
        return self._stretches[self._index(now_s)]

    @cached_property
    def served(self) -> frozenset[Task]:
        """All tasks that are served at some time."""
        tasks = (task for stretch in self._stretches for task in stretch.wanted.values())
        return frozenset(task for task in tasks if task and task.kind is Kind.INFERENCE)

    def to_come(self, now_s: float) -> Iterator[Stretch]:
        for index in range(self._index(now_s) + 1, len(self._stretches)):
            yield self._stretches[index]

    def left_s(self, now_s: float) -> float:
        """Seconds until the next stretch; infinite in the last one."""
        after = self._index(now_s) + 1
        return self._begins_s[after] - now_s if after < len(self._begins_s) else math.inf

    def _add(self, begin_s: float, wanted: Wanted) -> None:
        if self._stretches and self._stretches[-1].wanted == wanted:
            return
        mask = 0
        for site in wanted:
            mask |= site.mask
        retrains = any(task and task.kind is Kind.RETRAINING for task in wanted.values())
        self._stretches.append(Stretch(begin_s, wanted, mask, retrains))

    def _index(self, now_s: float) -> int:
        return max(0, bisect_right(self._begins_s, now_s + _TOLERANCE_S) - 1)


def _wanted(board: Board, holdings: tuple[Holding, ...]) -> Wanted:
    wanted: dict[Site, Task | None] = {}
    for holding in holdings:
        site = Site.of(board, holding)
        if site in wanted or not fits(board, site, wanted):
            raise InputError(
                f"decision: {holding} has no room beside {', '.join(map(str, wanted))}; "
                "check the plan"
            )
        wanted[site] = holding.task
    return dict(sorted(wanted.items()))


class Outlook:
    """The timeline from `now_s` on, with the running and the ended retrainings taken into
    account."""

    def __init__(
        self, timeline: Timeline, now_s: float, units: Iterable[Unit], done: Collection[str]
    ) -> None:
        self.now_s, self._timeline, self._done = now_s, timeline, done
        self._running = {
            unit.task.tenant: unit.site
            for unit in units
            if unit.state is State.TRAINING and unit.task is not None
        }

    @cached_property
    def planned(self) -> Wanted:
        """The layout that the plan wants at this time."""
        return self._due(self._timeline.at(self.now_s))

    def soon(self, lead_s: Callable[[str], float], longest_s: float) -> dict[Site, Task]:
        """Places that are needed soon and that no other task needs before.

        `lead_s`: per tenant, the seconds that count as soon. `longest_s`: the largest of them.
        """
        soon: dict[Site, Task] = {}
        before = _mask(site for site, task in self.planned.items() if task is not None)
        for stretch in self._timeline.to_come(self.now_s):
            left_s = stretch.begin_s - self.now_s
            if left_s > longest_s:
                break
            due = self._due(stretch)
            for site, task in due.items():
                free = not before & site.mask
                if task is not None and free and left_s <= lead_s(task.tenant):
                    soon[site] = task
            before |= _mask(due)
        return soon

    def coming(self, lead_s: Callable[[str], float], longest_s: float) -> dict[Site, Task]:
        """The places that soon serve another task than now, whatever their slices do until then.

        `lead_s`, `longest_s`: as for `soon`.
        """
        coming: dict[Site, Task] = {}
        for stretch in self._timeline.to_come(self.now_s):
            left_s = stretch.begin_s - self.now_s
            if left_s > longest_s:
                break
            for site, task in self._due(stretch).items():
                if task is None or task.kind is Kind.RETRAINING or site in coming:
                    continue
                if self.planned.get(site) != task and left_s <= lead_s(task.tenant):
                    coming[site] = task
        return coming

    def next_use(self, site: Site) -> tuple[Task | None] | None:
        """The task that next needs exactly this place; None if there is none or another place
        overlaps it."""
        for stretch in self._timeline.to_come(self.now_s):
            if site.mask and not stretch.mask & site.mask:
                continue  # a share has no slices, so only the stretches themselves tell
            due = self._due(stretch)
            if site in due:
                return (due[site],)
            if _mask(due) & site.mask:
                return None
        return None

    def _due(self, stretch: Stretch) -> Wanted:
        wanted = stretch.wanted
        if not stretch.retrains:
            return wanted
        return {site: task for site, task in wanted.items() if self._is_due(site, task)}

    def _is_due(self, site: Site, task: Task | None) -> bool:
        if task is None or task.kind is Kind.INFERENCE:
            return True
        return task.tenant not in self._done and self._running.get(task.tenant, site) == site


def _mask(sites: Iterable[Site]) -> int:
    mask = 0
    for site in sites:
        mask |= site.mask
    return mask


class Situation:
    """The existing units and the layout that the plan asks for. `units` is a live view, not a
    copy."""

    def __init__(
        self,
        board: Board,
        units: Mapping[Site, Unit],
        outlook: Outlook,
        fixed: Iterable[Site],
        available: Board,
        resting: Collection[Site] = (),
        removed: Collection[str] = (),
        waiting: Collection[Task] = (),
    ) -> None:
        """`fixed`: units that stay whatever the plan says. `waiting`: tasks that are begun nowhere.

        `available`: the board without the places of foreign instances. `resting`: sites where an
        operation has failed and is not retried yet. `removed`: tenants that need no instance.
        """
        self._board, self._units, self._outlook = board, units, outlook
        self._removed, self._waiting = removed, waiting
        self._available, self._resting = available, resting
        self.planned = outlook.planned
        self._fixed = set(fixed)
        ready: dict[Task, list[Site]] = {}
        for unit in units.values():
            if unit.state is State.READY and unit.task is not None:
                ready.setdefault(unit.task, []).append(unit.site)
        self.wanted = self._possible(ready)
        """The planned layout without what has to wait for fixed units."""
        self._transition = Transition(self._layouts(self.wanted))
        self.begun: Wanted = self._transition.begun
        """Instances to create and use at once: the wanted ones that fit beside the instances kept
        until they are replaced, and temporary replacements of those."""

    def stays(self, unit: Unit, task: Task) -> bool:
        """Whether a unit that serves or warms for `task` continues."""
        site, serving = unit.site, unit.state is State.READY
        if site in self._fixed or self._transition.kept.get(task) == site:
            return True
        if self._transition.is_in_the_way(site, task):
            return False
        if task in (self.wanted.get(site), self.begun.get(site)):
            return True
        if self._outlook.next_use(site) == (task,) or self._waited_for(site):
            return True
        # harmless: it may be removed once its replacement is ready
        harmless = self._last(unit, task) or (serving and not self._all_ready(task))
        return harmless and task.tenant not in self._removed

    def spare(self, site: Site) -> bool:
        """Whether to keep an idle unit, because the plan uses it in this slot or later."""
        if site in self.planned:
            return True
        return fits(self._board, site, self.wanted) and self._outlook.next_use(site) is not None

    def in_the_way(self, site: Site) -> bool:
        """Whether an idle unit must be removed for an instance that is being created."""
        return self._transition.is_in_the_way(site, None)

    def late(self, site: Site) -> bool:
        """Whether the planned task of a site is not running there."""
        task, unit = self.planned[site], self._units.get(site)
        return unit is None or (task is not None and not unit.does(task))

    def reserved(self, site: Site) -> bool:
        """Whether a wanted instance or a temporary replacement needs the slices first."""
        coming = {*self.wanted, *self.begun} - self._units.keys()
        return self._transition.is_reserved(site) or not fits(
            self._board, site, (*self._units, *coming)
        )

    def _possible(self, ready: Mapping[Task, list[Site]]) -> Wanted:
        """The planned layout, as far as it fits beside the fixed units.

        A retraining that takes longer than planned must not leave a tenant without an instance. It
        may occupy places that the plan gives to a task. If no other place of the task can be
        created before the task loses its last ready unit, one ready unit of it is fixed as well.
        """
        wanted = self._beside_fixed()
        while len(wanted) < len(self.planned) or wanted != self.planned:
            blocked = {task for site, task in self.planned.items() if wanted.get(site) != task}
            deprived = [
                task
                for task in ready
                if task in blocked and not self._fixed.intersection(ready[task])
            ]
            if deprived:
                served = {task for task in wanted.values() if task is not None}
                served &= {task for task, _ in find_order(self._layouts(wanted)).kept}
                deprived = [task for task in deprived if task not in served]
            if not deprived:
                break
            self._fixed.add(max(ready[deprived[0]]))
            wanted = self._beside_fixed()
        return wanted

    def _layouts(self, wanted: Wanted) -> Layouts:
        """The existing units and this layout, to find an order of steps for."""
        units, available = self._units.values(), self._available
        return layouts_of(self._board, units, wanted, self._fixed, available, self._resting)

    def _beside_fixed(self) -> Wanted:
        if not self._fixed and not self._waiting:
            return self.planned
        taken = list(self._fixed)
        wanted: dict[Site, Task | None] = {}
        for site, task in self.planned.items():
            unit = self._units.get(site)
            if unit is not None and site in self._fixed and unit.task is not None:
                wanted[site] = unit.task
            elif task not in self._waiting and (site in taken or fits(self._board, site, taken)):
                wanted[site] = task
                taken.append(site)
        return wanted

    def _waited_for(self, site: Site) -> bool:
        """Whether the instances that need the slices cannot be created yet."""
        return any(
            other not in self.begun and (other == site or other.mask & site.mask)
            for other in self.planned
        )

    def _last(self, unit: Unit, task: Task) -> bool:
        """Whether no other unit serves the task."""
        return not any(other.does(task) for other in self._units.values() if other != unit)

    def _all_ready(self, task: Task) -> bool:
        return not any(other == task and self.late(site) for site, other in self.planned.items())
