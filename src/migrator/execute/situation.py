"""The units beside what is asked for in the slot that runs: which of them stay as they are.

The plan is followed where that is possible; where it is not, what serves goes on serving.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from migrator.core.catalogue import Board
from migrator.core.instance import Task
from migrator.execute.lasting import lasting
from migrator.execute.outlook import Outlook
from migrator.execute.timeline import Wanted
from migrator.execute.units import Site, State, Unit, fits

_COMING = (State.CREATING, State.IDLE, State.WARMING)


class Situation:
    """What is there and what is asked for. `units` is looked at as it changes, never copied."""

    def __init__(
        self,
        board: Board,
        units: Mapping[Site, Unit],
        outlook: Outlook,
        fixed: Iterable[Site],
    ) -> None:
        """`fixed`: units that stay where they are whatever the plan says."""
        self._board, self._units, self._outlook = board, units, outlook
        self._before = tuple(units.values())
        self.asked = outlook.asked
        self.wanted = self._to_be_had(list(fixed))
        """What is asked for, less what has to wait for something that must not be touched."""

    def stays(self, unit: Unit, task: Task) -> bool:
        """Whether a unit that serves or warms for `task` goes on with it now."""
        site, serving = unit.site, unit.state is State.READY
        if self.wanted.get(site) == task:
            return True
        if self._in_the_way(site, task):
            heir = self._heir_comes(task) or self._heirs_wait(task) or site in self._lasting
            return serving and self._last(unit, task) and heir
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

    def late(self, site: Site) -> bool:
        """Whether what is asked for that place is not done there."""
        task, unit = self.asked[site], self._units.get(site)
        return unit is None or (task is not None and not unit.does(task))

    def _to_be_had(self, taken: list[Site]) -> Wanted:
        if not taken:
            return self.asked
        wanted: dict[Site, Task | None] = {}
        for site, task in self.asked.items():
            there = self._units.get(site)
            if there is not None and there.state is State.TRAINING:
                wanted[site] = there.task
            elif site in taken or fits(self._board, site, taken):
                wanted[site] = task
                taken.append(site)
        return wanted

    @cached_property
    def _lasting(self) -> frozenset[Site]:
        """As things stood before anybody made room: those who leave now are in nobody's way."""
        return lasting(self._board, self._before, self.wanted, self._in_the_way)

    def _in_the_way(self, site: Site, task: Task) -> bool:
        """Whether something wanted now cannot be had beside it."""
        if site in self.wanted:
            return self.wanted[site] not in (None, task)
        return not fits(self._board, site, self.wanted)

    def _waited_for(self, site: Site) -> bool:
        """Whether who is to have the slices cannot come now anyway."""
        return any(
            other not in self.wanted and (other == site or other.mask & site.mask)
            for other in self.asked
        )

    def _last(self, unit: Unit, task: Task) -> bool:
        """Whether nobody else serves the task."""
        return not any(each.does(task) for each in self._units.values() if each != unit)

    def _heir_comes(self, task: Task) -> bool:
        """Whether something that replaces it is on its way and needs nobody to leave."""
        return any(
            self._comes(site, task) for site, wanted in self.wanted.items() if wanted == task
        )

    def _heirs_wait(self, task: Task) -> bool:
        """Whether all that is to replace it waits for what must not be touched: a retraining that
        lasts longer than planned must not leave its tenant without anything that serves."""
        asked = [site for site, wanted in self.asked.items() if wanted == task]
        return bool(asked) and all(self.wanted.get(site) != task for site in asked)

    def _comes(self, site: Site, task: Task) -> bool:
        unit = self._units.get(site)
        if unit is not None:
            return unit.state in _COMING and unit.task in (None, task)
        return fits(self._board, site, self._units)

    def _all_ready(self, task: Task) -> bool:
        return not any(asked == task and self.late(site) for site, asked in self.asked.items())
