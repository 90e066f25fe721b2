"""Instances and shares through their lives, as the executor knows them.

creating -> idle -> warming -> ready -> draining -> stopping -> idle -> destroying; or, instead of
serving, idle -> training -> idle. What is gone has no unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.instance import Instance, Kind, Task
from migrator.core.placement import find_placement
from migrator.core.share import Holding, Share

_NOWHERE = -1


class Site(NamedTuple):
    """Where an instance sits: a placement that is fast to look up and to compare.

    A share of MPS has no place: it takes no slices, so there is room for it beside everything.
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
        """Where that instance sits; InputError where the board has no such place."""
        if isinstance(instance, Share):
            return Site(_NOWHERE, 0, 0, instance)
        place = find_placement(board, instance.start, instance.gpcs)
        if place is None:
            raise InputError(
                f"decision: a {board.name} has no place for {instance}; use `migrator boards "
                f"{board.name}` to see where instances fit"
            )
        return Site(place.start, place.gpcs, place.mask)


class State(StrEnum):
    """Where in its life a unit is."""

    CREATING = "creating"
    IDLE = "idle"
    """It exists and nobody uses it."""
    WARMING = "warming"
    READY = "ready"
    """Its worker serves."""
    DRAINING = "draining"
    STOPPING = "stopping"
    """Its worker gets nothing any more and is being ended."""
    TRAINING = "training"
    DESTROYING = "destroying"


@dataclass(frozen=True)
class Unit:
    """One instance or share, now."""

    site: Site
    state: State
    since_s: float
    """When it came into this state."""
    task: Task | None = None
    """What it serves or trains, from warming to stopping."""
    broken: bool = False
    """Workers keep dying there: it is to be made anew."""

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
        """Whether it serves or trains for that task now."""
        busy = State.READY if task.kind is Kind.INFERENCE else State.TRAINING
        return self.state is busy and self.task == task

    def into(self, state: State, now_s: float, task: Task | None = None) -> Unit:
        """The same instance in another state."""
        return replace(self, state=state, since_s=now_s, task=task)


def fits(board: Board, site: Site, beside: Iterable[Site]) -> bool:
    """Whether there is room beside the others; itself among them does not count."""
    gpcs = site.gpcs
    for other in beside:
        if other == site:
            continue
        if other.mask & site.mask:
            return False
        gpcs += other.gpcs
    return gpcs <= board.compute_slices
