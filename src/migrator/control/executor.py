"""The executor: walks a decision slot by slot and says what to create, warm, drain, train, destroy.

Pure: moments and events come in, instructions go out, nothing is done here. In every call the
units are set beside what is wanted now and soon, and each takes at most one step towards it, so
a new decision in the middle of everything is nothing special. What cannot be followed as planned
is answered with `Replan`, and what serves meanwhile goes on serving.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from migrator.control.events import (
    Create,
    Destroy,
    Drain,
    Event,
    Instruction,
    Replan,
    StopWorker,
    Train,
    Warm,
)
from migrator.control.hearing import Heard, hear
from migrator.control.outlook import Outlook
from migrator.control.situation import Situation
from migrator.control.standstill import standstill
from migrator.control.timeline import Timeline, Wanted
from migrator.control.trials import Trials
from migrator.control.troubles import Troubles
from migrator.control.units import Site, State, Unit, fits
from migrator.core.catalogue import Board
from migrator.core.instance import Kind, Task
from migrator.core.share import Holding

LEAD_S = 5.0
OVERHEADS = 2.0
"""What takes longer to warm is begun so many times its overhead ahead."""
REPLAN_AGAIN_SLOTS = 5
"""The same reason is not given again sooner."""


class Executor:
    """One GPU's units on their way to a decision."""

    def __init__(
        self,
        board: Board,
        lead_s: float = LEAD_S,
        overheads_s: Mapping[str, float] | None = None,
    ) -> None:
        """`lead_s`: how long before need free slices are used; `overheads_s`: per tenant, until a
        new instance serves, looked up whenever needed, so that measured ones can replace them."""
        self._board, self._lead_s = board, lead_s
        self._overheads_s = overheads_s if overheads_s is not None else {}
        self._units: dict[Site, Unit] = {}
        self._timeline: Timeline | None = None
        self._troubles, self._trials = Troubles(), Trials()
        self._late_since: dict[Site, tuple[Task | None, float]] = {}
        self._told_s: dict[str, float] = {}
        self._leaving = False
        self._available = board
        self._still: Mapping[Site, Task] | None = None
        self._said: list[Instruction] = []

    @property
    def units(self) -> tuple[Unit, ...]:
        """What exists now, by site."""
        return tuple(self._units[site] for site in sorted(self._units))

    def late_s(self, now_s: float, instance: Holding) -> float:
        """For how long an instance has been asked for and not been there; 0: it is in time."""
        known = self._late_since.get(Site.of(self._board, instance))
        return 0.0 if known is None else now_s - known[1]

    def adopt(self, now_s: float, instances: Iterable[Holding]) -> None:
        """Instances that are there already and idle: spares, used or removed as plans want."""
        for each in instances:
            site = Site.of(self._board, each)
            self._units.setdefault(site, Unit(site, State.IDLE, now_s))

    def follow(
        self,
        now_s: float,
        slots: Sequence[tuple[Holding, ...]],
        slot_s: float,
        *,
        window: int | None = None,
        since_s: float | None = None,
        available: Board | None = None,
    ) -> list[Instruction]:
        """A decision from now on, slot by slot; the last slot goes on.

        `window`: the one it is for; a retraining that ended in it is not begun again by a
        decision made before that was known. None: every decision is taken at its word.
        `since_s`: when its first slot began, where that was before now. `available`: the board
        without the places of foreign instances, where temporary instances may be.
        """
        begin_s = now_s if since_s is None else min(now_s, since_s)
        self._timeline = Timeline(self._board, begin_s, slots, slot_s)
        self._trials.begin(window)
        self._leaving = False
        self._available = available or self._board
        return self.tick(now_s)

    def renew(self, tenant: str) -> None:
        """A retraining outlasted its window: the next decision may begin this window's own."""
        self._trials.renew(tenant)

    def leave(self, now_s: float) -> list[Instruction]:
        """From now on free the whole board; only retrainings are waited for. `units` empties."""
        self._timeline = Timeline(self._board, now_s, [()], self._slot_s)
        self._leaving, self._still = True, None
        return self.tick(now_s)

    @property
    def paused(self) -> bool:
        """Whether nothing is changed for a plan."""
        return self._still is not None

    def pause(self, now_s: float) -> list[Instruction]:
        """From now on change nothing for a plan: what serves serves on, lost workers are replaced.

        Retrainings that run go on to their end, none is begun; decisions are kept for `resume`.
        """
        if self._still is None and not self._leaving:
            asked = self._timeline.at(now_s).wanted if self._timeline is not None else {}
            self._still = standstill(self._board, self._units.values(), asked)
            self._late_since = {}
        return self.tick(now_s)

    def resume(self, now_s: float) -> list[Instruction]:
        """Follow the newest decision from now on."""
        self._still = None
        return self.tick(now_s)

    def on(self, now_s: float, event: Event) -> list[Instruction]:
        """What happened, and what follows from it; what no longer fits a unit is ignored."""
        site = Site.of(self._board, event.instance)
        unit = self._units.get(site)
        if unit is None:
            return []
        heard = hear(unit, event, self._troubles, self._trials, now_s, self._slot_s)
        self._take(site, heard, now_s)
        return self.tick(now_s)

    def tick(self, now_s: float) -> list[Instruction]:
        """What is to be begun now; several times per slot, each takes microseconds."""
        if self._still is not None:
            self._stand(self._still, now_s)
        elif self._timeline is not None:
            self._step(self._timeline, now_s)
        said, self._said = self._said, []
        return said

    @property
    def _slot_s(self) -> float:
        return self._timeline.slot_s if self._timeline is not None else 1.0

    def _take(self, site: Site, heard: Heard, now_s: float) -> None:
        if heard.unit is None:
            del self._units[site]
        else:
            self._units[site] = heard.unit
        self._said += heard.instructions
        if heard.replan:
            self._replan(f"{heard.about} at {site}", heard.replan, now_s)

    def _step(self, timeline: Timeline, now_s: float) -> None:
        outlook = Outlook(timeline, now_s, self._units.values(), self._trials.done)
        fixed = [each.site for each in self._units.values() if self._is_fixed(each, now_s)]
        resting = self._troubles.resting(now_s)
        situation = Situation(self._board, self._units, outlook, fixed, self._available, resting)
        longest_s = max(map(self._lead_of, self._overheads_s), default=self._lead_s)
        soon = outlook.soon(self._lead_of, longest_s)
        for unit in self.units:
            self._go_on(unit, situation, soon, now_s)
        self._create(situation, soon, now_s)
        self._tell_late(situation, now_s)

    def _stand(self, still: Mapping[Site, Task], now_s: float) -> None:
        """While paused: what is to serve is kept up, and nothing else is touched."""
        for unit in self.units:
            if unit.state is not State.IDLE or self._troubles.rests(unit.site, now_s):
                continue
            task = still.get(unit.site)
            if task is not None and not unit.broken:
                self._begin(unit, task, now_s)
            elif task is not None or not fits(self._board, unit.site, still):
                self._destroy(unit, now_s)
        for site in still:
            self._create_one(site, self._units, now_s)

    def _is_fixed(self, unit: Unit, now_s: float) -> bool:
        """Whether nothing can be done about it now: a retraining, or a place that rests."""
        if unit.state is State.TRAINING:
            return True
        troubles, site = self._troubles, unit.site
        return unit.state is State.IDLE and (
            troubles.rests(site, now_s) or troubles.stuck(site, now_s)
        )

    def _lead_of(self, tenant: str) -> float:
        if self._lead_s <= 0:
            return 0.0
        return max(self._lead_s, OVERHEADS * self._overheads_s.get(tenant, 0.0))

    def _go_on(
        self, unit: Unit, situation: Situation, soon: Mapping[Site, Task], now_s: float
    ) -> None:
        """One step of one unit; where an event is awaited there is none."""
        match unit.state:
            case State.IDLE if not self._troubles.rests(unit.site, now_s):
                self._use(unit, situation, soon, now_s)
            case State.WARMING | State.READY:
                self._keep(unit, situation, now_s)
            case State.TRAINING:
                self._let_train(unit, situation.asked, now_s)

    def _use(
        self, unit: Unit, situation: Situation, soon: Mapping[Site, Task], now_s: float
    ) -> None:
        """An idle unit: to its task, kept as a spare, or away."""
        now, then = situation.begun.get(unit.site), soon.get(unit.site)
        if unit.broken or self._leaving:
            self._destroy(unit, now_s)
        elif now is not None:
            self._begin(unit, now, now_s)
        elif situation.in_the_way(unit.site):
            self._destroy(unit, now_s)
        elif then is not None and then.kind is Kind.INFERENCE:
            self._begin(unit, then, now_s)
        elif not situation.spare(unit.site):
            self._destroy(unit, now_s)

    def _begin(self, unit: Unit, task: Task, now_s: float) -> None:
        if task.kind is Kind.INFERENCE:
            self._become(unit.into(State.WARMING, now_s, task), Warm(unit.bare, task.tenant))
        elif not any(each.does(task) for each in self._units.values()):
            self._become(unit.into(State.TRAINING, now_s, task), Train(unit.bare, task.tenant))

    def _destroy(self, unit: Unit, now_s: float) -> None:
        if self._troubles.stuck(unit.site, now_s):
            return
        self._become(unit.into(State.DESTROYING, now_s), Destroy(unit.bare))

    def _keep(self, unit: Unit, situation: Situation, now_s: float) -> None:
        """A unit that serves or warms: it goes on, or makes room."""
        task = unit.task
        assert task is not None
        if not self._leaving and situation.stays(unit, task):
            return
        if unit.state is State.READY:
            self._become(unit.into(State.DRAINING, now_s, task), Drain(unit.bare, task.tenant))
        else:
            self._become(unit.into(State.STOPPING, now_s, task), StopWorker(unit.bare))

    def _let_train(self, unit: Unit, asked: Wanted, now_s: float) -> None:
        """Never interrupted: where the plan says otherwise, it yields."""
        if asked.get(unit.site) != unit.task:
            reason = f"{unit.task} still runs on {unit.bare}, which the plan has for something else"
            self._replan(f"training at {unit.site}", reason, now_s)

    def _create(self, situation: Situation, soon: Mapping[Site, Task], now_s: float) -> None:
        """What is begun now, then what is wanted soon, beside everything that is there."""
        for site in situation.begun:
            self._create_one(site, self._units, now_s)
        for site in soon:
            if not situation.reserved(site):
                self._create_one(site, self._units, now_s)

    def _create_one(self, site: Site, beside: Iterable[Site], now_s: float) -> None:
        if site in self._units or self._troubles.rests(site, now_s):
            return
        if fits(self._board, site, beside):
            unit = Unit(site, State.CREATING, now_s)
            self._become(unit, Create(unit.bare))

    def _tell_late(self, situation: Situation, now_s: float) -> None:
        """Replan where something asked for has not been there for long."""
        known, self._late_since = self._late_since, {}
        for site, task in situation.asked.items():
            if not situation.late(site):
                continue
            before = known.get(site)
            since = before if before is not None and before[0] == task else (task, now_s)
            self._late_since[site] = since
            late_s = now_s - since[1]
            if late_s > self._patience_s(task):
                reason = f"{site} for {task or 'nobody'} is late by {late_s:.1f} s"
                self._replan(f"late at {site}", reason, now_s)

    def _patience_s(self, task: Task | None) -> float:
        lead_s = self._lead_of(task.tenant) if task is not None else self._lead_s
        return max(lead_s, LEAD_S)

    def _become(self, unit: Unit, instruction: Instruction) -> None:
        self._units[unit.site] = unit
        self._said.append(instruction)

    def _replan(self, key: str, reason: str, now_s: float) -> None:
        told_s = self._told_s.get(key)
        if told_s is None or now_s - told_s >= REPLAN_AGAIN_SLOTS * self._slot_s:
            self._told_s[key] = now_s
            self._said.append(Replan(reason, key.partition(" at ")[0]))
