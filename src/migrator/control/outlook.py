"""A decision as it looks at one moment: what is asked for now, soon, and again.

Retrainings that ended, or that run elsewhere, are left out: their sites are not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property

from migrator.control.timeline import Stretch, Timeline, Wanted
from migrator.control.units import Site, State, Unit
from migrator.core.instance import Kind, Task


class Outlook:
    """The timeline from `now_s` on, beside the retrainings that run and are done."""

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
    def asked(self) -> Wanted:
        """By the plan, now."""
        return self._due(self._timeline.at(self.now_s))

    def soon(self, lead_s: Callable[[str], float], longest_s: float) -> dict[Site, Task]:
        """Places that nobody else is to have before the task that is to have them soon.

        `lead_s`: how soon, per tenant; `longest_s`: the longest of these.
        """
        found: dict[Site, Task] = {}
        before = _mask(site for site, task in self.asked.items() if task is not None)
        for stretch in self._timeline.to_come(self.now_s):
            left_s = stretch.begin_s - self.now_s
            if left_s > longest_s:
                break
            here = self._due(stretch)
            for site, task in here.items():
                free = not before & site.mask
                if task is not None and free and left_s <= lead_s(task.tenant):
                    found[site] = task
            before |= _mask(here)
        return found

    def next_use(self, site: Site) -> tuple[Task | None] | None:
        """What exactly this place is asked for next, None where nobody will or another needs it."""
        for stretch in self._timeline.to_come(self.now_s):
            if not stretch.mask & site.mask:
                continue
            here = self._due(stretch)
            if site in here:
                return (here[site],)
            if _mask(here) & site.mask:
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
