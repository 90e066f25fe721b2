"""Workers that wait on slices which another tenant uses, so that these change their tenant at once.

MPS allows that: processes on shares may overlap and need no instance to start, and a process that
waits takes memory but no SMs. A standby is started before its instance is needed, or is a worker
that was drained and kept. An instance that is warmed uses the standby of its place and tenant.
There are as many as fit into the memory that the other processes leave (`memory.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from migrator.control.events import Discard, Instruction, Prepare, Prepared
from migrator.control.memory import GpuMemory, ProcessKind
from migrator.control.units import Site, State, Unit
from migrator.core.problem import Instance, Task

AT_ONCE = 2
"""Standbys that are started at the same time without being needed soon."""
RETRY_S = 10.0
"""Before a standby that was lost or could not start is started again."""

Key = tuple[Site, Task]


@dataclass
class Standby:
    """A waiting worker."""

    is_ready: bool
    since_s: float


class Standbys:
    """The waiting workers of one GPU."""

    def __init__(self, memory: GpuMemory) -> None:
        self._memory = memory
        self._all: dict[Key, Standby] = {}
        self._lost_s: dict[Key, float] = {}
        """When standbys were lost or could not start."""
        self._drained_s: dict[Site, float] = {}
        self._starts_s: dict[str, float] = {}
        """How long the last standby of a tenant took to start."""

    @property
    def is_used(self) -> bool:
        """Whether there are or may be standbys."""
        return bool(self._all) or self._memory.most_standbys > 0

    @property
    def held_mib(self) -> float:
        return sum(map(self._mib_of, self._all))

    def has(self, site: Site, task: Task) -> bool:
        """Whether a standby waits for this task, or starts."""
        return (site, task) in self._all

    def waits(self, now_s: float) -> bool:
        """Whether one that was lost may be started again later."""
        self._lost_s = {key: at for key, at in self._lost_s.items() if now_s - at <= 2 * RETRY_S}
        return bool(self._lost_s)

    def start_s(self, tenant: str) -> float:
        """Seconds that a standby of the tenant takes to start; 0 if none was measured."""
        return self._starts_s.get(tenant, 0.0)

    def update(
        self,
        soon: Iterable[Key],
        tasks: Collection[Task],
        units: Collection[Unit],
        left_mib: float,
        now_s: float,
        held: Collection[str] = (),
    ) -> list[Instruction]:
        """Start and end standbys, which may hold `left_mib`.

        `soon`: places that serve a task soon or as soon as they can. `tasks`: all that are served
        in this plan; every serving instance gets a standby of the others, a few at a time. `held`:
        tenants for which no process can be started. Their standbys end only where nothing else
        frees the memory that other processes need.
        """
        planned = dict.fromkeys(soon)
        needed = {key: None for key in planned if _is_in_use(key, units)}
        used_now = planned.keys() - needed.keys()
        useful = {
            (unit.site, task): None
            for unit in units
            if unit.state is State.READY and unit.site.share is None
            for task in sorted(tasks)
            if task != unit.task
        }
        lasting = {key: None for key in self._all if key[1].tenant in held}
        ended = [key for key in self._all if key[1] not in tasks and key not in lasting]
        instructions = self._discard(ended)
        for kept in (planned | lasting, used_now | lasting.keys(), used_now):
            instructions += self._discard(self._in_the_way((), left_mib, useful, kept))
        for wanted, kept in ((needed, planned | lasting), (useful, planned | useful | lasting)):
            for key in wanted:
                if key in self._all or key[1].tenant in held:
                    continue
                if now_s - self._lost_s.get(key, -math.inf) < RETRY_S:
                    continue
                if wanted is useful and self._starting >= AT_ONCE:
                    break
                spare = self._in_the_way((key,), left_mib, useful, kept)
                if not self._fit((*self._all.keys() - {*spare}, key), left_mib):
                    continue
                instructions += self._discard(spare)
                self._all[key] = Standby(False, now_s)
                instructions.append(Prepare(_instance(key[0]), key[1].tenant))
        return instructions

    def clear(self) -> list[Instruction]:
        return self._discard(list(self._all))

    def on_prepared(self, site: Site, event: Prepared, now_s: float) -> bool:
        """A standby can serve, could not start or was lost; False if it is not wanted any more."""
        key = next(
            (key for key in self._all if key[0] == site and key[1].tenant == event.tenant), None
        )
        if key is None:
            return False
        if event.why:
            del self._all[key]
            self._lost_s[key] = now_s
        elif not self._all[key].is_ready:
            self._all[key].is_ready = True
            self._starts_s[event.tenant] = now_s - self._all[key].since_s
        return True

    def keep(self, site: Site, task: Task, now_s: float) -> bool:
        """Whether a drained worker is kept as a standby. The next update keeps the limits."""
        if site.share is not None or not self._memory.most_standbys:
            return False
        self._all[site, task] = Standby(True, now_s)
        return True

    def use(self, site: Site, task: Task) -> None:
        """The instance is warmed with the standby, if there is one."""
        self._all.pop((site, task), None)

    def drain(self, unit: Unit, now_s: float) -> None:
        """A worker gets no more requests."""
        if unit.site.share is None and self.is_used:
            self._drained_s[unit.site] = now_s

    def drained_s(self, site: Site) -> float:
        """When the slices of a place last lost a worker."""
        drained_s = (at_s for at, at_s in self._drained_s.items() if at.mask & site.mask)
        return max(drained_s, default=-math.inf)

    def is_starting(self, places: Mapping[Site, Task | None], site: Site) -> bool:
        """Whether one of the places that need the slices of `site` has a standby that starts."""
        return any(
            not standby.is_ready and places.get(place) == task and place.mask & site.mask
            for (place, task), standby in self._all.items()
        )

    @property
    def _starting(self) -> int:
        return sum(not standby.is_ready for standby in self._all.values())

    def _in_the_way(
        self, new: Collection[Key], left_mib: float, useful: Collection[Key], kept: Collection[Key]
    ) -> list[Key]:
        """The standbys to end so that the others and `new` fit, none of them in `kept`: first those
        outside `useful`, then the oldest."""
        spare = sorted(
            (key for key in self._all if key not in kept),
            key=lambda key: (key in useful, self._all[key].since_s),
        )
        left = dict.fromkeys((*self._all, *new))
        for ended, key in enumerate(spare):
            if self._fit(left, left_mib):
                return spare[:ended]
            del left[key]
        return spare

    def _fit(self, keys: Collection[Key], left_mib: float) -> bool:
        most = self._memory.most_standbys
        return len(keys) <= most and sum(map(self._mib_of, keys)) <= left_mib

    def _mib_of(self, key: Key) -> float:
        return self._memory.held_mib(key[1].tenant, ProcessKind.WORKER)

    def _discard(self, keys: Iterable[Key]) -> list[Instruction]:
        instructions: list[Instruction] = []
        for site, task in keys:
            del self._all[site, task]
            instructions.append(Discard(_instance(site), task.tenant))
        return instructions


def _is_in_use(key: Key, units: Iterable[Unit]) -> bool:
    """Whether another task uses the slices. If none does, the worker starts on its instance."""
    site, task = key
    used = False
    for unit in units:
        if unit.task is not None and unit.site.mask & site.mask:
            if unit.site == site and unit.task == task:
                return False
            used = True
    return used


def _instance(site: Site) -> Instance:
    return Instance(site.start, site.gpcs)
