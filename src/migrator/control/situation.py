"""The units beside what is asked for in the slot that runs: which of them stay as they are.

The plan is followed where that is possible; where it is not, what serves goes on serving.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from migrator.control.outlook import Outlook
from migrator.control.timeline import Wanted
from migrator.control.transition import Transition, layouts_of
from migrator.control.units import Site, State, Unit, fits
from migrator.core.catalogue import Board
from migrator.core.instance import Task


class Situation:
    """What is there and what is asked for. `units` is looked at as it changes, never copied."""

    def __init__(
        self,
        board: Board,
        units: Mapping[Site, Unit],
        outlook: Outlook,
        fixed: Iterable[Site],
        available: Board,
        resting: Collection[Site] = (),
    ) -> None:
        """`fixed`: units that stay where they are whatever the plan says; `available`: the board
        without the places of foreign instances; `resting`: where nothing is tried yet."""
        self._board, self._units, self._outlook = board, units, outlook
        self.asked = outlook.asked
        self._fixed = set(fixed)
        ready: dict[Task, list[Site]] = {}
        for unit in units.values():
            if unit.state is State.READY and unit.task is not None:
                ready.setdefault(unit.task, []).append(unit.site)
        self.wanted = self._possible(ready)
        """What is asked for, less what has to wait for something that must not be touched."""
        layouts = layouts_of(board, units.values(), self.wanted, self._fixed, available, resting)
        self._transition = Transition(layouts)
        self.begun: Wanted = self._transition.begun
        """What to create and use now: of what is wanted all that has room beside the instances
        that serve until they are replaced, and temporary replacements of these."""

    def stays(self, unit: Unit, task: Task) -> bool:
        """Whether a unit that serves or warms for `task` goes on with it now."""
        site, serving = unit.site, unit.state is State.READY
        if (serving and site in self._fixed) or self._transition.kept.get(task) == site:
            return True
        if self._transition.is_in_the_way(site, task):
            return False
        if task in (self.wanted.get(site), self.begun.get(site)):
            return True
        if self._outlook.next_use(site) == (task,) or self._waited_for(site):
            return True
        # harmless: it may go once what replaces it is there
        if serving:
            return self._last(unit, task) or not self._all_ready(task)
        return self._last(unit, task)

    def spare(self, site: Site) -> bool:
        """Whether an idle unit there is worth keeping: the plan has it, or comes back to it."""
        if site in self.asked:
            return True
        return fits(self._board, site, self.wanted) and self._outlook.next_use(site) is not None

    def in_the_way(self, site: Site) -> bool:
        """Whether an idle unit there has to leave for what begins now."""
        return self._transition.is_in_the_way(site, None)

    def late(self, site: Site) -> bool:
        """Whether what is asked for that place is not done there."""
        task, unit = self.asked[site], self._units.get(site)
        return unit is None or (task is not None and not unit.does(task))

    def reserved(self, site: Site) -> bool:
        """Whether something wanted, or a temporary replacement, is to have the slices first."""
        coming = {*self.wanted, *self.begun} - self._units.keys()
        return self._transition.is_reserved(site) or not fits(
            self._board, site, (*self._units, *coming)
        )

    def _possible(self, ready: Mapping[Task, list[Site]]) -> Wanted:
        """What is asked for and has room beside the fixed units.

        A retraining that lasts longer than planned must not leave a tenant without an instance:
        where it takes all the places that a task is to have, one of its ready units is fixed too.
        """
        wanted = self._beside_fixed()
        while len(wanted) < len(self.asked) or wanted != self.asked:
            there = set(wanted.values())
            deprived = [
                task
                for task in ready
                if task in self.asked.values()
                and task not in there
                and not self._fixed.intersection(ready[task])
            ]
            if not deprived:
                break
            self._fixed.add(max(ready[deprived[0]]))
            wanted = self._beside_fixed()
        return wanted

    def _beside_fixed(self) -> Wanted:
        if not self._fixed:
            return self.asked
        taken = list(self._fixed)
        wanted: dict[Site, Task | None] = {}
        for site, task in self.asked.items():
            there = self._units.get(site)
            if there is not None and site in self._fixed and there.task is not None:
                wanted[site] = there.task
            elif site in taken or fits(self._board, site, taken):
                wanted[site] = task
                taken.append(site)
        return wanted

    def _waited_for(self, site: Site) -> bool:
        """Whether what is to have the slices cannot be created now anyway."""
        return any(
            other not in self.begun and (other == site or other.mask & site.mask)
            for other in self.asked
        )

    def _last(self, unit: Unit, task: Task) -> bool:
        """Whether no other unit serves the task."""
        return not any(each.does(task) for each in self._units.values() if each != unit)

    def _all_ready(self, task: Task) -> bool:
        return not any(asked == task and self.late(site) for site, asked in self.asked.items())
