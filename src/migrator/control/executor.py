"""The executor: follows a decision slot by slot and issues instructions to create, warm, drain,
train and destroy.

It is pure: it takes times and events and returns instructions. Every call compares the units with
what the decision wants for this slot and the next ones, and moves each unit at most one step
towards it. A new decision may therefore arrive at any time. If the plan cannot be followed, the
executor returns `Replan`; serving instances continue to serve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from migrator.control.events import (
    Create,
    Destroy,
    Drain,
    Drained,
    Event,
    Instruction,
    Keep,
    Prepared,
    Replan,
    StopTraining,
    StopWorker,
    Train,
    Warm,
)
from migrator.control.memory import GpuMemory, ProcessKind
from migrator.control.standbys import Standbys
from migrator.control.timeline import Outlook, Situation, Stretch, Timeline
from migrator.control.units import (
    RetrainingRetries,
    Site,
    SiteRetries,
    State,
    Unit,
    UnitChange,
    Wanted,
    apply_event,
    fits,
    paused_layout,
)
from migrator.core.catalogue import Board
from migrator.core.problem import Holding, Instance, Kind, Task
from migrator.core.profiles import Service

LEAD_S = 5.0
OVERHEADS = 2.0
"""A tenant's lead time is at least its overhead times this factor."""
REPLAN_AGAIN_SLOTS = 5
"""Slots before the same reason to replan is reported again."""


@dataclass(frozen=True)
class Settled:
    """A step that had nothing to do: what it depended on beside the units."""

    timeline: Timeline
    stretch: Stretch
    """That of the timeline in which it was made."""
    done: frozenset[str]
    """Tenants whose retraining has ended."""
    memory: object
    """The state of the GPU's memory."""


class Executor:
    """Moves the units of one GPU towards a decision."""

    def __init__(
        self,
        board: Board,
        lead_s: float = LEAD_S,
        overheads_s: Mapping[str, float] | None = None,
        *,
        resizes: bool = True,
        memory: GpuMemory | None = None,
    ) -> None:
        """`lead_s`: seconds before an instance is needed at which free slices are used for it.

        `overheads_s`: per tenant, seconds until a new instance serves. It is read on every use, so
        measured values can replace the initial ones. `resizes`: whether a retraining on a share is
        ended and continued elsewhere where the decision has another share for it, or none. Those
        on instances are never interrupted. `memory`: what fits on the GPU; None: everything, and no
        worker waits as a standby.
        """
        self._resizes = resizes
        self._board, self._lead_s = board, lead_s
        self._overheads_s = overheads_s if overheads_s is not None else {}
        self._units: dict[Site, Unit] = {}
        self.memory = memory or GpuMemory()
        self._standbys = Standbys(self.memory)
        self._needed_mib = self._committed_mib = 0.0
        """What the processes of units hold or will hold, with those that the plan wants now and
        soon; the same without trainings that have not begun."""
        self._timeline: Timeline | None = None
        self._site_retries, self._retraining_retries = SiteRetries(), RetrainingRetries()
        self._late_since: dict[Site, tuple[Task | None, float]] = {}
        self._replan_asked_s: dict[str, float] = {}
        self._leaving = False
        self._available = board
        self._paused_layout: Mapping[Site, Task] | None = None
        """What stays while an operator has paused plans; None: they are applied."""
        self._held = frozenset[str]()
        """Tenants for which no process can be started."""
        self._instructions: list[Instruction] = []
        self._acted = False
        """Whether the present step has begun something or asked for a plan."""
        self._settled: Settled | None = None
        """What the last step found, if it had nothing to do."""
        self._removed: set[str] = set()

    @property
    def units(self) -> tuple[Unit, ...]:
        """All existing units, sorted by site."""
        return tuple(self._units[site] for site in sorted(self._units))

    def iter_units(self) -> Iterator[Unit]:
        """The same units, sorted only when iterated."""
        yield from self.units

    def admit_estimate(self, service: Service, beside: Holding) -> bool:
        """Whether there is memory for an estimate beside a worker of the tenant, if all standbys
        end. It counts until `memory.end_estimate`, and the next step ends those in its way."""
        if isinstance(beside, Instance) and not self._board.is_of_shares:
            instance_mib = self._board.memory_mib_of(beside.gpcs)
            return self.memory.admit_estimate_on(service, instance_mib)
        held_mib = max(self._needed_mib, self._total_mib({}), self._most_mib())
        return self.memory.admit_estimate(service.tenant, held_mib)

    def late_s(self, now_s: float, instance: Holding) -> float:
        """Seconds for which a planned instance has been missing; 0 if it is on time.

        It is not missing while its slices serve another tenant until its standby has started.
        """
        site = Site.of(self._board, instance)
        late = self._late_since.get(site)
        return 0.0 if late is None else now_s - max(late[1], self._standbys.drained_s(site))

    def is_stopping(self, instance: Holding) -> bool:
        """Whether the worker or retraining of an instance is being ended."""
        unit = self._units.get(Site.of(self._board, instance))
        return unit is not None and unit.state is State.STOPPING

    def task_for(self, now_s: float, instance: Holding) -> Task | None:
        """The task that the plan assigns to an instance next; None if the instance is temporary."""
        site = Site.of(self._board, instance)
        if self._timeline is None:
            return None
        for stretch in (self._timeline.at(now_s), *self._timeline.to_come(now_s)):
            if (task := stretch.wanted.get(site)) is not None:
                return task
        return None

    def adopt(self, now_s: float, instances: Iterable[Holding]) -> None:
        """Take over idle instances that already exist. Plans use or remove them."""
        self._settled = None
        for instance in instances:
            site = Site.of(self._board, instance)
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
        """Follow a decision slot by slot. Its last slot stays in force.

        `window`: the window of the decision. A retraining that has ended in it is not started again
        by a decision made without knowledge of that. None: start every retraining that the decision
        has. `since_s`: when the first slot began, if that is in the past. `available`: the board
        without the places of foreign instances; temporary instances may use it.
        """
        begin_s = now_s if since_s is None else min(now_s, since_s)
        self._timeline = Timeline(self._board, begin_s, slots, slot_s)
        self._retraining_retries.begin(window)
        if self._leaving or self._available != (available or self._board):
            self._settled = None
        self._leaving = False
        self._available = available or self._board
        return self.tick(now_s)

    def renew(self, tenant: str) -> None:
        """Allow the next decision to start another retraining of a tenant whose last one outlasted
        its window."""
        self._retraining_retries.renew(tenant)

    def remove(self, tenant: str) -> None:
        """Keep no instance of a tenant that the plan does not contain, not even its last one."""
        self._removed.add(tenant)
        self._settled = None

    def add(self, tenant: str) -> None:
        """Keep its last instance again, as that of every tenant."""
        self._removed.discard(tenant)

    def leave(self, now_s: float) -> list[Instruction]:
        """Free the whole board; wait only for running retrainings. `units` becomes empty."""
        self._timeline = Timeline(self._board, now_s, [()], self._slot_s)
        self._leaving, self._paused_layout, self._settled = True, None, None
        return self.tick(now_s)

    @property
    def paused(self) -> bool:
        """Whether an operator has paused the applying of plans."""
        return self._paused_layout is not None

    def may_retrain(self, tenant: str) -> bool:
        """Whether plans are applied for a tenant: no operator has paused them, and its processes
        can be started."""
        return not self.paused and tenant not in self._held

    def pause(self, now_s: float) -> list[Instruction]:
        """Stop applying plans. Serving instances stay, and lost workers are replaced.

        Running retrainings continue to their end and none is started. Decisions are kept for
        `resume`.
        """
        if self._paused_layout is None and not self._leaving:
            planned = self._timeline.at(now_s).wanted if self._timeline is not None else {}
            self._paused_layout = paused_layout(self._board, self._units.values(), planned)
            self._late_since = {}
        return self.tick(now_s)

    def resume(self, now_s: float) -> list[Instruction]:
        self._paused_layout = None
        return self.tick(now_s)

    def hold(self, now_s: float, tenants: frozenset[str]) -> list[Instruction]:
        """Keep the instances of these tenants, and of no others, until the next call: no process
        can be started for them, so a worker that is drained for a plan could not be replaced. Their
        running retrainings continue to their end and none is started."""
        self._held, self._settled = tenants, None
        return self.tick(now_s)

    def on(self, now_s: float, *events: Event) -> list[Instruction]:
        applied = False
        for event in events:
            site = Site.of(self._board, event.instance)
            unit = self._units.get(site)
            if isinstance(event, Prepared):
                if self._standbys.on_prepared(site, event, now_s):
                    applied, self._settled = True, None
            elif isinstance(event, Drained) and unit is not None and self._is_kept(unit, now_s):
                applied = True
                assert unit.task is not None
                keep = Keep(unit.bare, unit.task.tenant)
                self._store(site, UnitChange(unit.into(State.IDLE, now_s), (keep,)), now_s)
            elif unit is not None:
                applied = True
                outcome = apply_event(
                    unit, event, self._site_retries, self._retraining_retries, now_s, self._slot_s
                )
                self._store(site, outcome, now_s)
        return self.tick(now_s) if applied else []

    def tick(self, now_s: float) -> list[Instruction]:
        """The instructions due at this time. Call it several times per slot; a call takes
        microseconds."""
        if self._paused_layout is not None:
            self._settled = None
            self._reconcile_paused(self._paused_layout, now_s)
        elif self._timeline is not None and not self._is_settled(self._timeline, now_s):
            self._reconcile(self._timeline, now_s)
        instructions, self._instructions = self._instructions, []
        return instructions

    @property
    def _slot_s(self) -> float:
        return self._timeline.slot_s if self._timeline is not None else 1.0

    def _is_settled(self, timeline: Timeline, now_s: float) -> bool:
        """Whether a step would find what the last one found, which had nothing to do."""
        last = self._settled
        if last is None or last.done != self._retraining_retries.done:
            return False
        if last.timeline.at(now_s) is not last.stretch:
            return False
        if self.memory.state != last.memory:
            return False
        left_s = timeline.left_s(now_s)
        if timeline is last.timeline:
            return left_s > self._longest_s
        if self._standbys.is_used and timeline.served != last.timeline.served:
            return False
        same = timeline.at(now_s).wanted == last.stretch.wanted
        return same and left_s == last.timeline.left_s(now_s) == math.inf

    @property
    def _longest_s(self) -> float:
        return max(map(self._lead_of, self._overheads_s), default=self._lead_s)

    def _store(self, site: Site, outcome: UnitChange, now_s: float) -> None:
        self._settled = None
        if outcome.unit is None:
            del self._units[site]
        else:
            self._units[site] = outcome.unit
        self._instructions += outcome.instructions
        if outcome.replan:
            self._replan(f"{outcome.about} at {site}", outcome.replan, now_s)

    def _reconcile(self, timeline: Timeline, now_s: float) -> None:
        staying = [
            unit
            for unit in self._units.values()
            if not self._is_resizable(unit) or self._is_held(unit.task)
        ]
        outlook = Outlook(timeline, now_s, staying, self._retraining_retries.done)
        fixed = [unit.site for unit in self._units.values() if self._is_fixed(unit, now_s)]
        resting = self._site_retries.resting(now_s)
        waiting = self._waiting_tasks()
        situation = Situation(
            self._board,
            self._units,
            outlook,
            fixed,
            self._available,
            resting,
            self._removed,
            waiting,
        )
        soon = {
            site: task
            for site, task in outlook.soon(self._lead_of, self._longest_s).items()
            if task not in waiting
        }
        self._acted = False
        self._prepare(timeline, situation, outlook, soon, now_s)
        for unit in self.units:
            self._step(unit, situation, soon, now_s)
        self._create(situation, soon, now_s)
        self._report_late(situation, now_s)
        waits = self._acted or soon or self._late_since or self._site_retries.any_waits(now_s)
        waits = waits or self._standbys.waits(now_s)
        done = frozenset(self._retraining_retries.done)
        state = self.memory.state
        self._settled = None if waits else Settled(timeline, timeline.at(now_s), done, state)

    def _reconcile_paused(self, layout: Mapping[Site, Task], now_s: float) -> None:
        """While paused, keep the serving instances running and change nothing else."""
        for unit in self.units:
            if unit.state is not State.IDLE or self._site_retries.rests(unit.site, now_s):
                continue
            task = layout.get(unit.site)
            if task is not None and not unit.broken:
                self._begin(unit, task, now_s)
            elif task is not None or not fits(self._board, unit.site, layout):
                self._destroy(unit, now_s)
        for site in layout:
            self._create_one(site, self._units, now_s)

    def _prepare(
        self,
        timeline: Timeline,
        situation: Situation,
        outlook: Outlook,
        soon: Mapping[Site, Task],
        now_s: float,
    ) -> None:
        """Start and end the standbys, within the memory that all others leave."""
        coming = dict(soon) | {site: task for site, task in situation.begun.items() if task}
        serving = {site: task for site, task in coming.items() if task.kind is Kind.INFERENCE}
        self._committed_mib, self._needed_mib = map(self._total_mib, (serving, coming))
        if not self._standbys.is_used:
            return
        if self._leaving:
            instructions = self._standbys.clear()
        else:
            begun = [key for key in serving.items() if key[0] in situation.begun]
            next_uses = (*begun, *outlook.coming(self._lead_of, self._longest_s).items())
            left_mib = self.memory.free_mib - self._needed_mib
            held = self._held - self._removed
            instructions = self._standbys.update(
                next_uses, timeline.served, self.units, left_mib, now_s, held
            )
        self._instructions += instructions
        self._acted = self._acted or bool(instructions)

    def _total_mib(self, wanted: Mapping[Site, Task]) -> float:
        """What the units hold, and what wanted tasks take beyond the units that they replace."""
        if self.memory.limit_mib == math.inf:
            return 0.0
        held = {
            unit.site: self._mib_of(unit.site, unit.task)
            for unit in self._units.values()
            if unit.task is not None
        }
        total_mib = sum(held.values())
        for site, task in wanted.items():
            unit = self._units.get(site)
            if self._standbys.has(site, task) or (unit is not None and unit.task == task):
                continue
            needed_mib = self._mib_of(site, task)
            for other, held_mib in held.items():
                if other == site or other.mask & site.mask or self._moves(task, other):
                    held[other] = max(0.0, held_mib - needed_mib)
                    needed_mib = max(0.0, needed_mib - held_mib)
            total_mib += needed_mib
        return total_mib

    def _moves(self, task: Task, site: Site) -> bool:
        """Whether a retraining of this place continues elsewhere."""
        return task.kind is Kind.RETRAINING and self._units[site].task == task

    def _mib_of(self, site: Site, task: Task) -> float:
        """What the process of a task takes from the memory of the GPU."""
        shared = self._board.is_of_shares or site.share is not None
        return self.memory.held_mib(task.tenant, ProcessKind.of(task)) if shared else 0.0

    def _has_memory(self, site: Site, task: Task) -> bool:
        """Whether a training fits beside all that runs and the workers that the plan wants now, and
        beside those that later plans may want. Standbys give way to these.

        If there is nothing to wait for, the least has to suffice: torch gives back what it keeps
        when it finds no more.
        """
        needed_mib = self._mib_of(site, task)
        now_mib = self._committed_mib + self._standbys.held_mib
        free_mib = self.memory.free_mib - max(now_mib, self._most_mib(site))
        if needed_mib > free_mib and not self._waits_for_others:
            needed_mib = self.memory.least_for_training_mib(task.tenant)
        return not needed_mib or needed_mib <= free_mib

    @property
    def _waits_for_others(self) -> bool:
        """Whether a retraining or an estimate runs that frees its memory when it ends."""
        tasks = (unit.task for unit in self._units.values())
        trains = any(task is not None and task.kind is Kind.RETRAINING for task in tasks)
        return trains or self.memory.is_estimating

    def _most_mib(self, site: Site | None = None) -> float:
        """What trainings hold, and workers on all other slices than theirs and `site`."""
        if not self._board.is_of_shares:
            return 0.0
        slices = self._board.compute_slices - (site.gpcs if site is not None else 0)
        trained_mib = 0.0
        for unit in self._units.values():
            if unit.task is not None and unit.task.kind is Kind.RETRAINING:
                slices -= unit.site.gpcs
                trained_mib += self._mib_of(unit.site, unit.task)
        return trained_mib + slices * self.memory.largest_worker_mib

    def _is_kept(self, unit: Unit, now_s: float) -> bool:
        """Whether a drained worker stays as a standby."""
        if unit.state is not State.DRAINING or self._leaving or unit.task is None:
            return False
        return self._standbys.keep(unit.site, unit.task, now_s)

    def _is_fixed(self, unit: Unit, now_s: float) -> bool:
        """Whether a unit cannot be changed: it trains, could not be replaced, or its site waits
        after a failure."""
        if unit.state is State.TRAINING or (unit.is_serving and self._is_held(unit.task)):
            return True
        retries, site = self._site_retries, unit.site
        return unit.state is State.IDLE and (
            retries.rests(site, now_s) or retries.stuck(site, now_s)
        )

    def _is_resizable(self, unit: Unit) -> bool:
        return self._resizes and unit.site.share is not None

    def _is_held(self, task: Task | None) -> bool:
        if task is None or self._leaving or task.tenant in self._removed:
            return False
        return task.tenant in self._held

    def _waiting_tasks(self) -> set[Task]:
        """Tasks that are begun nowhere: retrainings of held tenants, and serving for one that has a
        worker. Without one, a worker that waits may still serve it."""
        if not self._held:
            return set()
        tasks = {Task(tenant, Kind.RETRAINING) for tenant in self._held}
        tasks |= {unit.task for unit in self._units.values() if unit.is_serving and unit.task}
        return {task for task in tasks if self._is_held(task)}

    def _lead_of(self, tenant: str) -> float:
        if self._lead_s <= 0:
            return 0.0
        start_s = max(self._overheads_s.get(tenant, 0.0), self._standbys.start_s(tenant))
        return max(self._lead_s, OVERHEADS * start_s)

    def _step(
        self, unit: Unit, situation: Situation, soon: Mapping[Site, Task], now_s: float
    ) -> None:
        """Move one unit by one step; a unit that waits for an event is left alone."""
        match unit.state:
            case State.IDLE if not self._site_retries.rests(unit.site, now_s):
                self._step_idle(unit, situation, soon, now_s)
            case State.WARMING | State.READY:
                self._step_serving(unit, situation, now_s)
            case State.TRAINING:
                self._step_training(unit, situation.planned, now_s)
            case _:
                pass

    def _step_idle(
        self, unit: Unit, situation: Situation, soon: Mapping[Site, Task], now_s: float
    ) -> None:
        """Give an idle unit its task, keep it as a spare, or destroy it."""
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
            self._standbys.use(unit.site, task)
            self._become(unit.into(State.WARMING, now_s, task), Warm(unit.bare, task.tenant))
        elif not any(unit.task == task for unit in self._units.values()):
            if self._has_memory(unit.site, task):
                self._committed_mib += self._mib_of(unit.site, task)
                self._become(unit.into(State.TRAINING, now_s, task), Train(unit.bare, task.tenant))
            else:
                self._acted = True  # it is tried again

    def _destroy(self, unit: Unit, now_s: float) -> None:
        if self._site_retries.stuck(unit.site, now_s):
            return
        self._become(unit.into(State.DESTROYING, now_s), Destroy(unit.bare))

    def _step_serving(self, unit: Unit, situation: Situation, now_s: float) -> None:
        """Let a serving or warming unit continue, or drain it."""
        task = unit.task
        assert task is not None
        if not self._leaving and situation.stays(unit, task):
            return
        if unit.state is State.READY:
            if not self._leaving and self._standbys.is_starting(situation.begun, unit.site):
                return  # it serves until the worker that follows is ready
            self._standbys.drain(unit, now_s)
            self._become(unit.into(State.DRAINING, now_s, task), Drain(unit.bare, task.tenant))
        else:
            self._become(unit.into(State.STOPPING, now_s, task), StopWorker(unit.bare))

    def _step_training(self, unit: Unit, planned: Wanted, now_s: float) -> None:
        """Ask for a new plan if the plan wants the place of a retraining on an instance; end one on
        a share, which continues on another."""
        assert unit.task is not None
        if planned.get(unit.site) == unit.task:
            return
        if self._is_resizable(unit) and not self._leaving:
            if self._is_held(unit.task):
                return  # it could not continue on another share
            stopping = unit.into(State.STOPPING, now_s, unit.task)
            self._become(stopping, StopTraining(unit.bare, unit.task.tenant))
        else:
            reason = f"{unit.task} still runs on {unit.bare}, which the plan has for something else"
            self._replan(f"training at {unit.site}", reason, now_s)

    def _create(self, situation: Situation, soon: Mapping[Site, Task], now_s: float) -> None:
        """Create the instances that are due, then those needed soon, if they fit beside all
        units."""
        for site in situation.begun:
            self._create_one(site, self._units, now_s)
        for site in soon:
            if not situation.reserved(site):
                self._create_one(site, self._units, now_s)

    def _create_one(self, site: Site, beside: Iterable[Site], now_s: float) -> None:
        if site in self._units or self._site_retries.rests(site, now_s):
            return
        if fits(self._board, site, beside):
            unit = Unit(site, State.CREATING, now_s)
            self._become(unit, Create(unit.bare))

    def _report_late(self, situation: Situation, now_s: float) -> None:
        """Ask for a new plan if a planned instance has been missing for too long."""
        late_since, self._late_since = self._late_since, {}
        for site, task in situation.planned.items():
            waits = self._held and (site, task) not in situation.wanted.items()
            if waits or not situation.late(site):
                continue
            before = late_since.get(site)
            since = before if before is not None and before[0] == task else (task, now_s)
            self._late_since[site] = since
            late_s = now_s - since[1]
            if late_s > self._patience_s(task):
                reason = f"{site} for {task or 'no task'} is late by {late_s:.1f} s"
                self._replan(f"late at {site}", reason, now_s)

    def _patience_s(self, task: Task | None) -> float:
        lead_s = self._lead_of(task.tenant) if task is not None else self._lead_s
        return max(lead_s, LEAD_S)

    def _become(self, unit: Unit, instruction: Instruction) -> None:
        self._units[unit.site] = unit
        self._instructions.append(instruction)
        self._acted = True

    def _replan(self, key: str, reason: str, now_s: float) -> None:
        self._acted = True
        asked_s = self._replan_asked_s.get(key)
        if asked_s is None or now_s - asked_s >= REPLAN_AGAIN_SLOTS * self._slot_s:
            self._replan_asked_s[key] = now_s
            self._instructions.append(Replan(reason, key.partition(" at ")[0]))
