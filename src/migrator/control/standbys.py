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
from migrator.core.instance import Instance, Task
from migrator.core.profiles import Service

PER_SLICE = 2
"""Most standbys per slice of the board. MPS serves 48 processes."""
AT_ONCE = 2
"""Standbys that are started at the same time without being needed soon."""

Key = tuple[Site, Task]


@dataclass
class Standby:
    """A waiting worker."""

    is_ready: bool
    """Whether it can serve, or could not start."""
    since_s: float


def most_standbys(board: Board, services: Iterable[Service]) -> int:
    """Standbys for which the GPU has the memory beside workers on all slices and retrainings.

    None on MIG instances, and none if it is not known how much memory a model takes.
    """
    if not board.is_of_shares:
        return 0
    known = [(each.profile.serving_mib(each.batch), each.profile.training_mib) for each in services]
    if not known or not all(serving for serving, _ in known):
        return 0
    largest_mib, slices = max(serving for serving, _ in known), board.compute_slices
    left_mib = board.memory_mib_of(board.sizes[-1]) - slices * largest_mib
    left_mib -= sum(training for _, training in known)
    return max(0, int(min(PER_SLICE * slices, left_mib // largest_mib)))


class Standbys:
    """The waiting workers of one GPU."""

    def __init__(self, most: Callable[[], int]) -> None:
        """`most`: waiting workers at a time; 0: none."""
        self._limit = most
        self._all: dict[Key, Standby] = {}
        self._drained_s: dict[Site, float] = {}

    @property
    def is_used(self) -> bool:
        """Whether there are or may be standbys."""
        return bool(self._all) or self._limit() > 0

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
        most, found = self._limit(), list[Instruction]()
        needed = [key for key in soon.items() if _is_in_use(key, units)]
        useful = [
            (each.site, task)
            for each in units
            if each.state is State.READY and each.site.share is None
            for task in tasks
            if task != each.task
        ]
        found += self._discard([key for key in self._all if key[1] not in tasks])
        starting = sum(not each.is_ready for each in self._all.values())
        for key in dict.fromkeys((*needed, *useful)):
            if key in self._all:
                continue
            if key not in needed and (starting >= AT_ONCE or len(self._all) >= most):
                break
            self._all[key] = Standby(False, now_s)
            found.append(Prepare(_instance(key[0]), key[1].tenant))
            starting += 1
        spare = sorted(
            (key for key in self._all if key not in needed),
            key=lambda key: (key in useful, self._all[key].since_s),
        )
        return found + self._discard(spare[: max(0, len(self._all) - most)])

    def clear(self) -> list[Instruction]:
        """End all standbys."""
        return self._discard(list(self._all))

    def on_prepared(self, site: Site, event: Prepared) -> bool:
        """Whether the event is about a standby that is still wanted."""
        for (place, task), standby in self._all.items():
            if place == site and task.tenant == event.tenant:
                standby.is_ready = True
                return True
        return False

    def keep(self, site: Site, task: Task, now_s: float) -> bool:
        """Whether a drained worker is kept as a standby."""
        if site.share is not None or not self._limit():
            return False
        self._all[site, task] = Standby(True, now_s)
        return True

    def use(self, site: Site, task: Task) -> None:
        """The instance is warmed with the standby, if there is one."""
        self._all.pop((site, task), None)

    def drain(self, unit: Unit, now_s: float) -> None:
        """A worker gets no more requests."""
        if unit.site.share is None and self._limit():
            self._drained_s[unit.site] = now_s

    def drained_s(self, site: Site) -> float:
        """When the slices of a place last lost a worker to another place or tenant."""
        return max(
            (s for at, s in self._drained_s.items() if at.mask & site.mask), default=-math.inf
        )

    def is_starting(self, places: Mapping[Site, Task | None], site: Site) -> bool:
        """Whether one of the places that need the slices of `site` has a standby that starts."""
        return any(
            not each.is_ready and places.get(place) == task and place.mask & site.mask
            for (place, task), each in self._all.items()
        )

    def _discard(self, keys: Iterable[Key]) -> list[Instruction]:
        found: list[Instruction] = []
        for site, task in keys:
            del self._all[site, task]
            found.append(Discard(_instance(site), task.tenant))
        return found


def _is_in_use(key: Key, units: Iterable[Unit]) -> bool:
    """Whether another task uses the slices. If none does, the worker starts on its instance."""
    site, task = key
    used = False
    for each in units:
        if each.task is not None and each.site.mask & site.mask:
            if each.site == site and each.task == task:
                return False
            used = True
    return used


def _instance(site: Site) -> Instance:
    return Instance(site.start, site.gpcs)
