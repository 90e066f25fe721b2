"""Workers that wait on slices which another tenant uses, so that these change their tenant at once.

MPS allows that: processes on shares may overlap and need no instance to start, and a process that
waits takes memory but no SMs. A standby is started before its instance is needed, or is a worker
that was drained and kept. An instance that is warmed uses the standby of its place and tenant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from migrator.control.events import Discard, Instruction, Prepare, Prepared
from migrator.control.units import Site, State, Unit
from migrator.core.catalogue import Board
from migrator.core.problem import Instance, Task
from migrator.core.profiles import Service

PER_SLICE = 2
"""Most standbys per slice of the board. MPS serves 48 processes."""
AT_ONCE = 2
"""Standbys that are started at the same time without being needed soon."""
RETRY_S = 10.0
"""Before a standby that was lost or could not start is started again."""

Key = tuple[Site, Task]


def most_standbys(board: Board, services: Iterable[Service]) -> int:
    """Standbys for which the GPU has the memory beside workers on all slices and retrainings.

    None on MIG instances, and none if it is not known how much memory a model takes.
    """
    if not board.is_of_shares:
        return 0
    needs_mib = [
        (service.profile.serving_mib(service.batch), service.profile.training_mib)
        for service in services
    ]
    if not needs_mib or not all(serving for serving, _ in needs_mib):
        return 0
    largest_mib, slices = max(serving for serving, _ in needs_mib), board.compute_slices
    left_mib = board.memory_mib_of(board.sizes[-1]) - slices * largest_mib
    left_mib -= sum(training for _, training in needs_mib)
    return max(0, int(min(PER_SLICE * slices, left_mib // largest_mib)))


@dataclass
class Standby:
    """A waiting worker."""

    is_ready: bool
    since_s: float


class Standbys:
    """The waiting workers of one GPU."""

    def __init__(self, limit: Callable[[], int]) -> None:
        """`limit`: most waiting workers at a time; 0: none."""
        self.limit = limit
        self._all: dict[Key, Standby] = {}
        self._lost_s: dict[Key, float] = {}
        """When standbys were lost or could not start."""
        self._drained_s: dict[Site, float] = {}
        self._starts_s: dict[str, float] = {}
        """How long the last standby of a tenant took to start."""

    @property
    def is_used(self) -> bool:
        """Whether there are or may be standbys."""
        return bool(self._all) or self.limit() > 0

    def waits(self, now_s: float) -> bool:
        """Whether one that was lost may be started again later."""
        self._lost_s = {key: at for key, at in self._lost_s.items() if now_s - at <= 2 * RETRY_S}
        return bool(self._lost_s)

    def start_s(self, tenant: str) -> float:
        """Seconds that a standby of the tenant takes to start; 0 if none was measured."""
        return self._starts_s.get(tenant, 0.0)

    def update(
        self,
        soon: Mapping[Site, Task],
        tasks: Collection[Task],
        units: Collection[Unit],
        now_s: float,
    ) -> list[Instruction]:
        """Start and end standbys.

        `soon`: places that serve a task soon or as soon as they can. `tasks`: all that are served
        in this plan; every serving instance gets a standby of the others, a few at a time.
        """
        needed = {key: None for key in soon.items() if _is_in_use(key, units)}
        useful = {
            (unit.site, task): None
            for unit in units
            if unit.state is State.READY and unit.site.share is None
            for task in sorted(tasks)
            if task != unit.task
        }
        instructions = self._discard([key for key in self._all if key[1] not in tasks])
        most = self.limit()
        instructions += self._evict(len(self._all) - most, useful, needed)
        for wanted, kept in ((needed, needed), (useful, needed | useful)):
            for key in wanted:
                if key in self._all or now_s - self._lost_s.get(key, -math.inf) < RETRY_S:
                    continue
                if wanted is useful and self._starting >= AT_ONCE:
                    break
                instructions += self._evict(len(self._all) + 1 - most, useful, kept)
                if len(self._all) >= most:
                    break
                self._all[key] = Standby(False, now_s)
                instructions.append(Prepare(_instance(key[0]), key[1].tenant))
        return instructions

    def clear(self) -> list[Instruction]:
        """End all standbys."""
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
        """Whether a drained worker is kept as a standby. The next update keeps the limit."""
        if site.share is not None or not self.limit():
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

    def _evict(
        self, count: int, useful: Collection[Key], kept: Collection[Key]
    ) -> list[Instruction]:
        """End up to `count` standbys that are not in `kept`: first those outside `useful`, then the
        oldest."""
        spare = sorted(
            (key for key in self._all if key not in kept),
            key=lambda key: (key in useful, self._all[key].since_s),
        )
        return self._discard(spare[: max(0, count)])

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
