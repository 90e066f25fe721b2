"""Worker processes through time: what a new allocation keeps, ends and starts.

Under MIG slices are exclusive: what leaves finishes its batch, then the new instance is
created and warmed, and serves nothing until then. Under MPS a share is only a limit, so the
old process goes on until its successor is warm; a change is a delay, not an outage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from migrator.core.catalogue import Board
from migrator.core.instance import Instance, Kind, Task
from migrator.core.placement import find_placement
from migrator.core.service import Service
from migrator.core.share import Holding, Share


@dataclass(eq=False)
class Life:
    """One worker process on one holding, from its wish to its end."""

    holding: Holding
    task: Task
    sms: float
    since_s: float
    ready_s: float
    until_s: float = math.inf
    free_s: float = -math.inf
    """When it is done with what it holds."""

    @property
    def duty(self) -> float:
        """The part of the time it has its SMs."""
        return self.holding.duty if isinstance(self.holding, Share) else 1.0


@dataclass(frozen=True)
class Costs:
    """What a start costs each tenant, and how long its longest batch may run on."""

    overhead_s: dict[str, float]
    services: dict[str, Service]

    def drain_s(self, life: Life) -> float:
        """The longest that a process may still need for what it holds."""
        if life.task.kind is Kind.RETRAINING:
            return 0.0
        service = self.services[life.task.tenant]
        return service.latency_s(service.batch, life.sms) / life.duty


class Lives(Protocol):
    """The worker processes of a GPU under one way of sharing it."""

    everyone: list[Life]
    """Those alive, and those that ended since the last `forget`."""

    def retarget(self, now_s: float, wanted: tuple[Holding, ...]) -> list[Life]:
        """Make it so from now on; returns those that are new."""
        ...

    def forget(self, before_s: float) -> None:
        """Drop those that ended by then."""
        ...


@dataclass
class _Everyone:
    board: Board
    costs: Costs
    everyone: list[Life] = field(default_factory=list)
    begun: bool = False
    """Before the first allocation nothing is known, so what it asks for is there at once."""

    def forget(self, before_s: float) -> None:
        """Drop those that ended by then."""
        self.everyone = [each for each in self.everyone if each.until_s > before_s]

    def _alive(self) -> list[Life]:
        return [each for each in self.everyone if each.until_s == math.inf]

    def _born(self, holding: Holding, task: Task, sms: float, now_s: float, wait_s: float) -> Life:
        cold_s = wait_s + self.costs.overhead_s[task.tenant]
        if not self.begun and task.kind is Kind.INFERENCE:
            cold_s = 0.0
        life = Life(holding, task, sms, now_s, now_s + cold_s)
        self.everyone.append(life)
        return life


class MigLives(_Everyone):
    """Instances on slices: identified by place, size and tenant."""

    def retarget(self, now_s: float, wanted: tuple[Holding, ...]) -> list[Life]:
        """Make it so from now on; returns those that are new."""
        places = {_place(each): each for each in wanted if isinstance(each, Instance) and each.task}
        kept, leaving = {}, []
        for life in self._alive():
            place = _place(life.holding)
            if place in places:
                kept[place] = life
            else:
                life.until_s = now_s
                leaving.append(life)
        for place, life in kept.items():
            self._go_on(life, places[place], now_s)
        new = [
            self._create(instance, now_s, leaving)
            for place, instance in places.items()
            if place not in kept
        ]
        self.begun = True
        return new

    def _go_on(self, life: Life, instance: Instance, now_s: float) -> None:
        """The same instance; where its task changes, its tenant's other process takes it."""
        task = instance.task
        if task is None or task == life.task:
            return
        life.until_s = now_s
        heir = self._born(instance, task, life.sms, now_s, 0.0)
        if task.kind is Kind.INFERENCE:
            heir.ready_s = max(now_s, life.ready_s)  # the trained model is on the instance already

    def _create(self, instance: Instance, now_s: float, leaving: Iterable[Life]) -> Life:
        assert instance.task is not None
        drain_s = max(
            (self.costs.drain_s(each) for each in leaving if self._overlap(instance, each)),
            default=0.0,
        )
        sms = self.board.sms_of(instance.gpcs)
        return self._born(instance, instance.task, sms, now_s, drain_s)

    def _overlap(self, instance: Instance, life: Life) -> bool:
        assert isinstance(life.holding, Instance)
        here, there = (
            find_placement(self.board, each.start, each.gpcs) for each in (instance, life.holding)
        )
        return here is not None and there is not None and here.overlaps(there)


class MpsLives(_Everyone):
    """Shares of the SMs: another percentage is another process, started beside the old one."""

    def retarget(self, now_s: float, wanted: tuple[Holding, ...]) -> list[Life]:
        """Make it so from now on; returns those that are new."""
        shares = [each for each in wanted if isinstance(each, Share)]
        alive = [each for each in self.everyone if each.until_s > now_s]
        new: list[Life] = []
        for task in dict.fromkeys([*(each.task for each in shares), *(e.task for e in alive)]):
            mine = [each for each in shares if each.task == task]
            new += self._replace(task, mine, [e for e in alive if e.task == task], now_s)
        self.begun = True
        return new

    def _replace(
        self, task: Task, wanted: list[Share], alive: list[Life], now_s: float
    ) -> list[Life]:
        kept = [each for each in alive if each.holding in wanted]
        leaving = [each for each in alive if each.holding not in wanted]
        new: list[Life] = []
        # A start that nobody wants any more is waited for: starting over each slot would never end.
        if not any(each.ready_s > now_s for each in leaving) or not wanted:
            present = {each.holding for each in kept}
            new = [
                self._born(each, task, self.board.sms * each.percent / 100, now_s, 0.0)
                for each in wanted
                if each not in present
            ]
            over_s = max((each.ready_s for each in [*kept, *new]), default=now_s)
            for each in leaving:
                each.until_s = max(now_s, over_s)
        for each in kept:
            each.until_s = math.inf
        return new


def _place(holding: Holding) -> tuple[int, int, str]:
    assert isinstance(holding, Instance)
    assert holding.task is not None
    return holding.start, holding.gpcs, holding.task.tenant
