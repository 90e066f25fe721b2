"""A GPU and its workers in virtual time, judging every instruction of the executor.

It shares nothing with the executor but its events: what exists, who works where and what the
plan wants is kept again, in its own way.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from migrator.control import events as ev
from migrator.control.executor import Executor
from migrator.control.units import RESUMED, State
from migrator.core.catalogue import Board, Placement, find_placement
from migrator.core.problem import Instance, Kind, Task

Slots = Sequence[tuple[Instance, ...]]


@dataclass(frozen=True)
class Faults:
    """How likely each thing goes wrong, until `until_s`."""

    create: float = 0.0
    destroy: float = 0.0
    warm: float = 0.0
    serve: float = 0.0
    """Chance per ready worker that it dies within its next seconds."""
    train: float = 0.0
    until_s: float = 0.0


@dataclass(frozen=True)
class Times:
    """How long things take, as on an A100 with small models."""

    create_s: tuple[float, float] = (0.16, 0.24)
    destroy_s: tuple[float, float] = (0.20, 0.26)
    warm_s: tuple[float, float] = (0.8, 1.6)
    drain_s: tuple[float, float] = (0.0, 0.1)
    stop_s: tuple[float, float] = (0.01, 0.1)
    train_s: tuple[float, float] = (3.0, 12.0)


@dataclass
class Body:
    """What is really on a place."""

    state: str
    """creating, idle, warming, ready, draining, stopping, training, destroying"""
    tenant: str | None = None
    life: int = 0


@dataclass
class World:
    """One run: follow decisions, let time pass, look at what is there."""

    board: Board
    executor: Executor
    seed: int = 0
    faults: Faults = Faults()
    times: Times = Times()
    tick_s: float = 0.25
    now_s: float = 0.0
    bodies: dict[Placement, Body] = field(default_factory=dict)
    slots: Slots = ((),)
    slot_s: float = 1.0
    begun_s: float = 0.0
    done: set[str] = field(default_factory=set)
    """Tenants whose retraining ended, or failed too often."""
    failed: Counter[str] = field(default_factory=Counter)
    log: list[tuple[float, ev.Instruction]] = field(default_factory=list)
    late_unit_s: float = 0.0
    """Seconds that instances wanted for inference did not serve, added up."""
    leaving: bool = False
    standbys: dict[tuple[Placement, str], str] = field(default_factory=dict)
    """Workers that wait: starting or ready."""
    served: dict[Placement, str] | None = None
    """While paused: who was served or warmed where when the pause began."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._queue: list[tuple[float, int, int, Placement, ev.Event]] = []
        self._order = 0
        self._seen: tuple[Instance, ...] | None = None
        self._without: set[str] = set()
        self._wanted: dict[Placement, Task | None] = {}

    def follow(
        self,
        slots: Slots,
        *,
        slot_s: float = 1.0,
        window: int | None = None,
        available: Board | None = None,
    ) -> None:
        self.slots, self.slot_s, self.begun_s = slots, slot_s, self.now_s
        if window is None:
            self.done.clear()
            self.failed.clear()
        said = self.executor.follow(
            self.now_s, list(slots), slot_s, window=window, available=available
        )
        self._obey(said)

    def pause(self) -> None:
        self.served = {
            place: body.tenant
            for place, body in self.bodies.items()
            if body.state in ("ready", "warming") and body.tenant is not None
        }
        planned = {task.tenant for task in self.wanted().values() if task is not None}
        emptied = {b.tenant for b in self.bodies.values() if b.tenant and b.state != "training"}
        self._without = (planned | emptied) - set(self.served.values())
        self._obey(self.executor.pause(self.now_s))

    def resume(self) -> None:
        self.served = None
        self._obey(self.executor.resume(self.now_s))

    def leave(self) -> None:
        self.leaving = True
        self._obey(self.executor.leave(self.now_s))

    def run(self, seconds: float) -> None:
        """Ticks and events in order for so long."""
        end_s = self.now_s + seconds
        next_tick_s = self.now_s + self.tick_s
        while True:
            due_s = self._queue[0][0] if self._queue else end_s
            at_s = min(due_s, next_tick_s, end_s)
            self._pass(at_s)
            if self._queue and due_s <= at_s:
                self._happen()
            elif at_s >= end_s:
                return
            else:
                next_tick_s = at_s + self.tick_s
                self._obey(self.executor.tick(self.now_s))

    def wanted(self) -> dict[Placement, Task | None]:
        """What the decision has for now, read from it directly."""
        index = int((self.now_s - self.begun_s) / self.slot_s + 1e-6)
        holdings = self.slots[min(index, len(self.slots) - 1)]
        if holdings is not self._seen:
            self._seen, self._wanted = holdings, {self._place(h): h.task for h in holdings}
        return self._wanted

    def serving(self, tenant: str) -> list[Placement]:
        return [p for p, b in self.bodies.items() if b.state == "ready" and b.tenant == tenant]

    def missing(self) -> list[str]:
        """What is wanted now and not there; what is there and not wanted."""
        wanted, wrong = self.wanted(), []
        for place, task in wanted.items():
            body = self.bodies.get(place)
            if task is None or (task.kind is Kind.RETRAINING and task.tenant in self.done):
                continue
            busy = "ready" if task.kind is Kind.INFERENCE else "training"
            if body is None or (body.state, body.tenant) != (busy, task.tenant):
                wrong.append(f"{place} for {task} is {body}")
        served = {task.tenant for task in wanted.values() if task and task.kind is Kind.INFERENCE}
        for place, body in self.bodies.items():
            last = body.state == "ready" and body.tenant not in served
            if place not in wanted and not last and body.state != "training":
                wrong.append(f"{place} is {body}")
        return wrong

    def count(self, kind: type[ev.Instruction]) -> int:
        return sum(isinstance(event, kind) for _, event in self.log)

    def _place(self, instance: Instance) -> Placement:
        place = find_placement(self.board, instance.start, instance.gpcs)
        assert place is not None
        return place

    def _pass(self, at_s: float) -> None:
        for place, task in self.wanted().items():
            if task is not None and task.kind is Kind.INFERENCE:
                body = self.bodies.get(place)
                served = body is not None and (body.state, body.tenant) == ("ready", task.tenant)
                self.late_unit_s += 0.0 if served else at_s - self.now_s
        self.now_s = at_s

    def _faulty(self, chance: float) -> bool:
        return self.now_s < self.faults.until_s and self._random.random() < chance

    def _later(self, between_s: tuple[float, float], place: Placement, event: ev.Event) -> None:
        self._order += 1
        at_s = self.now_s + self._random.uniform(*between_s)
        life = self.bodies[place].life
        heapq.heappush(self._queue, (at_s, self._order, life, place, event))

    def _happen(self) -> None:
        _, _, life, place, event = heapq.heappop(self._queue)
        if isinstance(event, ev.Prepared):
            if self.standbys.get((place, event.tenant)) == f"starting {life}":
                self.standbys[place, event.tenant] = "ready"
                if event.why:
                    del self.standbys[place, event.tenant]
                self._obey(self.executor.on(self.now_s, event))
            return
        body = self.bodies.get(place)
        if body is None or body.life != life:
            return  # a worker that was to die has ended before
        self._change(place, body, event)
        self._obey(self.executor.on(self.now_s, event))
        self._agree()

    def _change(self, place: Placement, body: Body, event: ev.Event) -> None:
        body.life += 1
        match event:
            case ev.CreateFailed() | ev.Destroyed():
                del self.bodies[place]
            case ev.Ready():
                body.state = "ready"
                if self._faulty(self.faults.serve):
                    self._later((0.0, 6.0), place, ev.WorkerLost(event.instance, "killed"))
            case ev.Drained():
                body.state = "drained"
            case ev.TrainingEnded(tenant=tenant, ok=ok):
                body.state, body.tenant = "idle", None
                self.failed[tenant] += not ok
                if ok or self.failed[tenant] > RESUMED:
                    self.done.add(tenant)
            case _:
                body.state, body.tenant = "idle", None

    def _obey(self, instructions: Sequence[ev.Instruction]) -> None:
        for instruction in instructions:
            self.log.append((self.now_s, instruction))
            if not isinstance(instruction, ev.Replan):
                assert isinstance(instruction.instance, Instance)
                if self.served is not None:
                    self._check_paused(self.served, self._place(instruction.instance), instruction)
                self._judge_and_do(self._place(instruction.instance), instruction)

    def _judge_and_do(  # noqa: PLR0915 (a case per instruction)
        self, place: Placement, said: ev.Instruction
    ) -> None:
        assert not isinstance(said, ev.Replan)
        instance = said.instance
        if isinstance(said, ev.Create):
            self._check_room(place)
            # no number of an earlier body there: what was to happen to that one is over
            self.bodies[place] = Body("creating", life=1000 * (self._order + 1))
            failed = ev.CreateFailed(instance, "refused")
            bad = self._faulty(self.faults.create)
            self._later(self.times.create_s, place, failed if bad else ev.Created(instance))
            return
        if isinstance(said, ev.Prepare | ev.Discard):
            self._prepare_or_discard(place, said)
            return
        body = self.bodies[place]
        body.life += 1
        match said:
            case ev.Keep(tenant=tenant):
                assert (body.state, body.tenant) == ("drained", tenant), f"{said} while {body}"
                self.standbys[place, tenant] = "ready"
                body.state, body.tenant = "idle", None
            case ev.Destroy():
                assert body.state == "idle", f"{said} while {body}"
                body.state = "destroying"
                failed_too = ev.DestroyFailed(instance, "in use")
                bad = self._faulty(self.faults.destroy)
                event = failed_too if bad else ev.Destroyed(instance)
                self._later(self.times.destroy_s, place, event)
            case ev.Warm(tenant=tenant):
                assert body.state == "idle", f"{said} while {body}"
                body.state, body.tenant = "warming", tenant
                seconds = self._random.uniform(*self.times.warm_s)
                if self.standbys.pop((place, tenant), None) == "ready":
                    seconds = 0.0
                lost = ev.WorkerLost(instance, "killed while warming")
                bad = self._faulty(self.faults.warm)
                ready = ev.Ready(instance, seconds)
                self._later((seconds, seconds), place, lost if bad else ready)
            case ev.Drain(tenant=tenant):
                self._check_may_go(place, body, tenant)
                body.state = "draining"
                bad = self._faulty(self.faults.serve)
                lost = ev.WorkerLost(instance, "killed while draining")
                self._later(self.times.drain_s, place, lost if bad else ev.Drained(instance))
            case ev.StopWorker():
                assert body.state in ("warming", "drained", "idle"), f"{said} while {body}"
                if body.state == "warming" and self._is_wanted(place, body.tenant):
                    self._check_temporary(place, body)
                body.state = "stopping"
                self._later(self.times.stop_s, place, ev.Stopped(instance))
            case ev.Train(tenant=tenant):
                assert body.state == "idle", f"{said} while {body}"
                assert not [
                    b for b in self.bodies.values() if b.tenant == tenant and b.state == "training"
                ]
                assert tenant not in self.done
                assert self.wanted().get(place) == Task(tenant, Kind.RETRAINING)
                body.state, body.tenant = "training", tenant
                ok = not self._faulty(self.faults.train)
                self._later(
                    self.times.train_s, place, ev.TrainingEnded(instance, tenant, ok, "killed")
                )

    def _prepare_or_discard(self, place: Placement, said: ev.Prepare | ev.Discard) -> None:
        key = place, said.tenant
        if isinstance(said, ev.Discard):
            del self.standbys[key]  # raises if there is none
            return
        assert key not in self.standbys, f"{said} twice"
        body = self.bodies.get(place)
        assert body is None or (body.state, body.tenant) != ("ready", said.tenant)
        self._order += 1
        self.standbys[key] = f"starting {self._order}"
        at_s = self.now_s + self._random.uniform(*self.times.warm_s)
        why = "killed while starting" if self._faulty(self.faults.warm) else ""
        event = ev.Prepared(said.instance, said.tenant, why)
        heapq.heappush(self._queue, (at_s, self._order, self._order, place, event))

    def _check_paused(
        self, served: dict[Placement, str], place: Placement, said: ev.Instruction
    ) -> None:
        """Nothing that serves is touched; others only for whoever had nothing when it began."""
        had = served.get(place)
        match said:
            case ev.StopWorker():
                assert self.bodies[place].state != "warming", f"{said} while paused"
            case ev.Warm(tenant=tenant):
                assert had == tenant or tenant in self._without, f"{said} while paused"
            case ev.Keep(tenant=tenant):
                assert self.bodies[place].state == "drained"
            case ev.Create() | ev.Destroy():
                assert had is not None or self._without, f"{said} while paused"
            case _:
                raise AssertionError(f"{said} while paused")

    def _check_room(self, place: Placement) -> None:
        assert not [p for p in self.bodies if p.overlaps(place)], f"no room for {place}"
        total = sum(p.gpcs for p in self.bodies) + place.gpcs
        assert total <= self.board.compute_slices

    def _is_wanted(self, place: Placement, tenant: str | None) -> bool:
        if self.leaving or tenant is None:
            return False
        return self.wanted().get(place) == Task(tenant, Kind.INFERENCE)

    def _check_may_go(self, place: Placement, body: Body, tenant: str) -> None:
        """What stays with its tenant leaves only for a temporary instance of another tenant; the
        last one goes only where it must."""
        assert (body.state, body.tenant) == ("ready", tenant)
        if self._is_wanted(place, tenant):
            self._check_temporary(place, body)
        if self.leaving or self.serving(tenant) != [place]:
            return
        needed = any(
            other.overlaps(place) and not (other == place and task is None)
            for other, task in self.wanted().items()
        )
        assert needed, f"{tenant} lost its last instance {place} for nobody"

    def _check_temporary(self, place: Placement, body: Body) -> None:
        """Another tenant serves, and nowhere where the decision wants it. One that serves is never
        left without an instance for that; one that does not yet serve may have to wait."""
        tenant = body.tenant
        assert tenant is not None
        assert body.state == "warming" or len(self.serving(tenant)) > 1
        others = {body.tenant for body in self.bodies.values() if body.state == "ready"} - {tenant}
        assert any(
            not any(self._is_wanted(placement, other) for placement in self.serving(other))
            for other in others
            if other is not None
        ), f"{place} leaves {tenant} for nobody"

    def _agree(self) -> None:
        """The executor knows what is there."""
        states = {(unit.site.start, unit.site.gpcs): unit.state for unit in self.executor.units}
        there = {
            (place.start, place.gpcs): State.STOPPING
            if body.state == "drained"
            else State(body.state)
            for place, body in self.bodies.items()
        }
        assert states == there
