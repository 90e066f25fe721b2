"""Instances and shares with their states, as the executor sees them.

creating -> idle -> warming -> ready -> draining -> stopping -> idle -> destroying. To retrain: idle
-> training -> idle. A destroyed instance has no unit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.instance import Holding, Instance, Kind, Share, Task
from migrator.core.placement import find_placement

_NOWHERE = -1


class Site(NamedTuple):
    """The place of an instance, fast to hash and to compare.

    An MPS share has no place: it takes no slices, so it fits beside everything.
    """

    start: int
    gpcs: int
    mask: int
    """Its memory slices as bits."""
    share: Share | None = None

    def __str__(self) -> str:
        if self.share is not None:
            return f"{self.share} of {self.share.task}"
        return f"{self.gpcs}g@{self.start}"

    @staticmethod
    def of(board: Board, instance: Holding) -> Site:
        """The site of an instance; InputError if the board has no such place."""
        if isinstance(instance, Share):
            return Site(_NOWHERE, 0, 0, instance)
        place = find_placement(board, instance.start, instance.gpcs)
        if place is None:
            raise InputError(
                f"decision: a {board.name} has no place for {instance}; use `migrator boards "
                f"{board.name}` to see where instances fit"
            )
        return Site(place.start, place.gpcs, place.mask)


Wanted = Mapping[Site, Task | None]
"""The task wanted at each site; None: the instance only has to exist."""


class State(StrEnum):
    """The state of a unit."""

    CREATING = "creating"
    IDLE = "idle"
    """The instance exists and is unused."""
    WARMING = "warming"
    READY = "ready"
    """The worker serves."""
    DRAINING = "draining"
    STOPPING = "stopping"
    """The worker gets no requests any more and is being ended."""
    TRAINING = "training"
    DESTROYING = "destroying"

    __hash__ = str.__hash__  # faster than that of an Enum, which is written in Python


@dataclass(frozen=True)
class Unit:
    """One instance or share and its state."""

    site: Site
    state: State
    since_s: float
    """When it entered this state."""
    task: Task | None = None
    """The task it serves or trains, from warming to stopping."""
    broken: bool = False
    """Its workers keep dying, so it must be recreated."""

    @property
    def instance(self) -> Holding:
        """The instance with the task it holds, or the share."""
        if self.site.share is not None:
            return self.site.share
        return Instance(self.site.start, self.site.gpcs, self.task)

    @property
    def bare(self) -> Holding:
        """The instance without its task, or the share, as instructions name it."""
        if self.site.share is not None:
            return self.site.share
        return Instance(self.site.start, self.site.gpcs)

    def does(self, task: Task) -> bool:
        """Whether it serves or trains for that task."""
        busy = State.READY if task.kind is Kind.INFERENCE else State.TRAINING
        return self.state is busy and self.task == task

    def into(self, state: State, now_s: float, task: Task | None = None) -> Unit:
        """The same instance in another state."""
        return replace(self, state=state, since_s=now_s, task=task)


_SERVES = (State.WARMING, State.READY)
_LEAVES = (State.DRAINING, State.STOPPING)


def fits(board: Board, site: Site, beside: Iterable[Site]) -> bool:
    """Whether the site fits beside the others. The site itself is ignored among them."""
    gpcs = site.gpcs
    for other in beside:
        if other == site:
            continue
        if other.mask & site.mask:
            return False
        gpcs += other.gpcs
    return gpcs <= board.compute_slices


def paused_layout(board: Board, units: Collection[Unit], asked: Wanted) -> Mapping[Site, Task]:
    """The task of each site while plans are paused: every serving or warming instance stays.

    `asked`: the plan's layout at this time. A pause may begin in the middle of a change. A tenant
    without an instance at that moment keeps the one that is being drained, or else gets a planned
    one that fits beside the others, so that a pause never takes a tenant's last instance.
    """
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
