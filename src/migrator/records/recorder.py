"""Records a run while the controller makes it: decisions, states of units, retrainings, events.

The simulator and the daemon use the same recorder and add what only they know: the requests of
every second and window, and how long things took. It observes and decides nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Protocol, TypedDict

from migrator.control.events import Event, Instruction, Prepared, Replan, TrainingEnded
from migrator.control.observation import Decision
from migrator.control.planning_loop import REGULAR
from migrator.control.retraining import Phase, TenantRetraining
from migrator.control.tenant_state import TenantState
from migrator.control.units import State, Unit
from migrator.control.why_not_retrained import why_not_retrained
from migrator.control.window_clock import WindowClock
from migrator.core.catalogue import Board
from migrator.core.not_retrained import NotRetrained, Reason
from migrator.core.problem import Holding, Share
from migrator.planning.plan_file import plan_to_json
from migrator.records.expected_arrivals import ExpectedArrivals
from migrator.records.rows import (
    EventRecord,
    PlanRecord,
    Record,
    RetrainingRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.runs import held_blocks

_RECORDED_REASONS = (
    Reason.NO_DATA,
    Reason.OUT_OF_MEMORY,
    Reason.TOO_LONG,
    Reason.NO_ROOM,
    Reason.LEFT_OUT,
)
"""Reasons of a missing retraining that are recorded as events; the others have an event already."""


class Sink(Protocol):
    """Takes the rows of one run: a file, or memory."""

    def put(self, record: Record) -> None:
        """Take a row. It replaces the row with the same key."""


class ControlledUnits(Protocol):
    """What the recorder reads of the controller's executor."""

    @property
    def units(self) -> tuple[Unit, ...]:
        """All existing units."""

    @property
    def paused(self) -> bool:
        """Whether an operator has paused the applying of plans."""


class Recorder:
    """Writes the rows of one run. It is an observer of the controller."""

    def __init__(
        self,
        sink: Sink,
        board: Board,
        names: tuple[str, str],
        clock: WindowClock,
        tenants: Mapping[str, TenantState],
        executor: ControlledUnits,
        time_s: Callable[[], float],
    ) -> None:
        """`names`: of the policy and of the forecaster. `time_s`: the Unix time."""
        self._sink, self._board, self._names = sink, board, names
        self._clock, self._tenants, self._executor = clock, tenants, executor
        self._time_s = time_s
        self.forecasts = ExpectedArrivals(clock)
        self._units = _UnitRows(sink, board)
        self._window: WindowRecord | None = None
        self._reason = ""
        self._followed: tuple[int, int, Decision] | None = None
        """Window and slot in which the last decision was followed, and the decision."""
        self._retrainings: dict[str, RetrainingRecord] = {}
        self._trained: dict[str, _Trained] = {}
        self._explained_in: dict[str, int] = {}
        """The last window for which an event says why a tenant is not retrained."""

    # Windows and slots.

    def begin_window(self) -> None:
        """Record that the clock's window begins. Call it before the policy is asked."""
        self._window = WindowRecord(self._clock.number, self._time_s(), *self._names)
        self._sink.put(self._window)

    def record_slot(self) -> None:
        """Record the units and the retrainings at the end of a slot."""
        self.update_units()
        for name in self._tenants:
            self._put_retraining(name)

    def record_end_of_window(self, ended_s: float) -> None:
        """Record that the window has ended."""
        if self._window is not None:
            self._sink.put(replace(self._window, ended_s=ended_s))
        self.forecasts.end_window()

    # Decisions, as the controller's observer.

    def plan_requested(self, reason: str) -> None:
        """Record why the policy is asked. The next plan gets this reason.

        A question at the policy's own interval is no event: most of them change nothing.
        """
        self._reason = reason
        if reason != REGULAR:
            self.event("plan", f"asked for a plan: {reason}")

    def plan_followed(self, decision: Decision, seconds: float) -> None:
        """Record a decision that takes effect, `seconds` after it was requested."""
        self.record_decision(decision, seconds)

    def plan_refused(self, error: Exception) -> None:
        """Do nothing: `plan_failed` records the reason."""

    def plan_failed(self, why: str) -> None:
        """Record why there is no plan, or none that can be followed."""
        self.warn("plan", why)

    def record_decision(self, decision: Decision, seconds: float) -> bool:
        """Record a decision, unless it is the last one again. Returns whether it changes any slot
        until the window's end. `seconds`: its planning time."""
        changed = self._changes(decision)
        self._followed = self._clock.number, self._clock.slot, decision
        if self._window is not None and changed:
            self._put_decision(self._window, decision, seconds)
        if decision.problem is not None:
            self.forecasts.expect(decision.problem)
        return changed

    # Units, instructions and events.

    def update_units(self) -> None:
        """Record the units that changed since the last call."""
        self._units.update(self._executor.units, self._time_s())

    def close_units(self, ended_s: float) -> None:
        """Record the end of the run for units that still exist."""
        self._units.close(ended_s)

    def started(self, place: Holding, parts_s: Mapping[str, float]) -> None:
        """Record how long a unit took until it served."""
        self.update_units()
        self._units.add_overhead(place, parts_s)

    def created_s(self, place: Holding) -> float:
        """How long the creation of an existing unit took; 0 if it was not observed."""
        return self._units.created_s(place)

    def instructed(self, instruction: Instruction) -> None:
        """Record why the controller asks for another plan."""
        if isinstance(instruction, Replan):
            self.event("replan", instruction.reason)

    def ended(self, event: Event) -> None:
        """Record the failure that an event reports, if it reports one."""
        why = getattr(event, "why", "")
        if isinstance(event, TrainingEnded):
            if not event.ok:
                self.warn("retraining", f"{event.tenant}: {why}", tenant=event.tenant)
        elif why:
            instance = str(event.instance)
            kind = "standby" if isinstance(event, Prepared) else type(event).__name__
            self.warn(kind, f"{instance}: {why}", instance=instance)

    def event(self, kind: str, words: str, **fields: object) -> None:
        """Record an event. `fields` are for the log line of a recorder that logs."""
        self._put_event(logging.INFO, kind, words, fields)

    def warn(self, kind: str, words: str, **fields: object) -> None:
        """Record an event that an operator has to know of."""
        self._put_event(logging.WARNING, kind, words, fields)

    def _put_event(self, level: int, kind: str, words: str, fields: Mapping[str, object]) -> None:
        del level, fields
        self._sink.put(EventRecord(self._time_s(), kind, words))

    # Retrainings and versions.

    def why_not_retrained(self, tenant: str) -> NotRetrained | None:
        """Why a tenant is not being retrained now; None if it is, or was in this window."""
        return why_not_retrained(self._tenants[tenant], paused=self._executor.paused)

    def trained(
        self,
        tenant: str,
        job: TenantRetraining,
        instance: Holding,
        seconds: float,
        planned_s: float,
        parts_s: Mapping[str, float],
    ) -> None:
        """Record how long a retraining took, beside its expected duration, both without the start
        of its process."""
        way = f" as {job.configuration!r}" if job.configuration else ""
        sentence = (
            f"{tenant}: retraining{way} on {instance} took {seconds:.1f} s, "
            f"planned {planned_s:.1f} s"
        )
        fields = {"seconds": round(seconds, 3), "planned_s": round(planned_s, 3)}
        self.event("retraining", sentence, tenant=tenant, **fields)
        self._trained[tenant] = _Trained(job.window, **fields, parts_s=dict(parts_s))

    def add_training_part(self, tenant: str, part: str, seconds: float) -> None:
        """Add a part to the duration of the newest retraining."""
        trained = self._trained.get(tenant)
        if trained is None:
            return
        trained.parts_s[part] = round(seconds, 3)
        row = self._retrainings.get(tenant)
        if row is not None and row.window == trained.window and row.parts_s:
            self._retrainings[tenant] = row = replace(row, parts_s=dict(trained.parts_s))
            self._sink.put(row)

    def put_version(
        self,
        tenant: str,
        number: int,
        accuracy: float | None,
        words: str,
        *,
        adopted: bool = True,
        at_s: float | None = None,
    ) -> None:
        """Record that a version of a tenant's model begins to serve, or was refused.

        `at_s`: when, if not now.
        """
        at_s = self._time_s() if at_s is None else at_s
        self._sink.put(VersionRecord(tenant, number, at_s, accuracy, adopted, words))

    def _changes(self, decision: Decision) -> bool:
        """Whether a decision differs from the last one in any slot until the window's end."""
        if self._followed is None or self._followed[0] != self._clock.number:
            return True
        _, since, before = self._followed
        slot, slots = self._clock.slot, self._clock.slots
        passed = slot - since
        # from then on, the last slot of each stays in force
        settled = max(len(decision.slots), len(before.slots) - passed)
        return any(
            not _uses_same(_slot_of(decision, ahead), _slot_of(before, passed + ahead))
            for ahead in range(min(slots - slot, settled))
        )

    def _put_decision(self, window: WindowRecord, decision: Decision, seconds: float) -> None:
        plan, slot = decision.plan, self._clock.slot
        if window.plan_s is not None:
            window = replace(window, replans=window.replans + 1)
        elif plan is not None and decision.problem is not None:
            written = plan_to_json(plan)
            goodput = decision.predicted_goodput
            window = replace(window, plan_s=seconds, plan=written, predicted_goodput=goodput)
        else:
            window = replace(window, plan_s=seconds)
        self._window = window
        self._sink.put(window)
        self._sink.put(
            PlanRecord(
                self._clock.number,
                self._time_s(),
                slot,
                self._reason,
                decision.predicted_goodput,
                seconds,
                plan.gap if plan and math.isfinite(plan.gap) else None,
                held_blocks(decision.slots, self._board, slot, self._clock.slots),
            )
        )

    def _put_retraining(self, name: str) -> None:
        """Record the progress of a retraining, or why there is none, if that changed."""
        job, retraining = self._tenants[name].retraining, self._retrainings.get(name)
        now_s = self._time_s()
        row = RetrainingRecord(self._clock.number, name, now_s, Phase.NONE, 0.0)
        if job is not None:
            row = RetrainingRecord(
                *(job.window, name, now_s, job.phase, round(job.progress, 3), job.expected),
                configuration=job.configuration,
            )
        waits = self.why_not_retrained(name)
        if waits is not None:
            row = replace(row, reason=waits.reason.value, why=waits.words)
            self._record_reason(name, waits)
        trained = self._trained.get(name)
        if job is not None and trained is not None and trained.window == job.window:
            row = replace(
                row,
                planned_s=trained.planned_s,
                taken_s=trained.seconds,
                parts_s=dict(trained.parts_s),
            )
        if retraining is None or replace(retraining, at_s=row.at_s) != row:
            self._retrainings[name] = row
            self._sink.put(row)

    def _record_reason(self, name: str, waits: NotRetrained) -> None:
        """Record as an event why a tenant is not retrained, once per window."""
        if waits.reason in _RECORDED_REASONS and self._explained_in.get(name) != self._clock.number:
            self._explained_in[name] = self._clock.number
            sentence = f"{name}: {waits.words}"
            self.event("retraining", sentence, tenant=name, reason=waits.reason.value)


def _uses_same(one: Sequence[Holding], other: Sequence[Holding]) -> bool:
    """Whether two slots use the same holdings; those without a task do not count."""
    return one == other or _used(one) == _used(other)


def _used(holdings: Iterable[Holding]) -> frozenset[Holding]:
    return frozenset(holding for holding in holdings if holding.task is not None)


def _slot_of(decision: Decision, slot: int) -> tuple[Holding, ...]:
    """What a decision holds in its slot of that number; its last slot stays in force."""
    return decision.slots[min(slot, len(decision.slots) - 1)]


@dataclass
class _Trained:
    """Durations of a tenant's last retraining."""

    window: int
    seconds: float
    planned_s: float
    parts_s: dict[str, float]


class _UnitRows:
    """Writes a row for every state of every unit."""

    def __init__(self, sink: Sink, board: Board) -> None:
        self._sink, self._board = sink, board
        self._open: dict[Holding, UnitRecord] = {}
        self._creation_s: dict[Holding, float] = {}
        """How long the existing units took to create."""
        self._created = 0
        self._last: tuple[Unit, ...] = ()
        self.warming: set[str] = set()
        """Tenants with an instance that is not warm yet."""

    def update(self, units: tuple[Unit, ...], now_s: float) -> None:
        last, self._last = self._last, units
        if len(units) == len(last) and all(map(is_, units, last)):
            return  # a unit that changes becomes another object
        present = {unit.bare: unit for unit in units}
        for place in [place for place in self._open if place not in present]:
            self._sink.put(replace(self._open.pop(place), to_s=now_s))
            self._creation_s.pop(place, None)
        for place, unit in present.items():
            self._update(place, unit, now_s)
        self.warming = {
            unit.task.tenant
            for unit in present.values()
            if unit.task and unit.state is State.WARMING
        }

    def close(self, ended_s: float) -> None:
        self.update((), ended_s)

    def add_overhead(self, place: Holding, parts_s: Mapping[str, float]) -> None:
        unit = self._open.get(place)
        if unit is not None:
            self._open[place] = row = replace(unit, parts_s=dict(parts_s))
            self._sink.put(row)

    def created_s(self, place: Holding) -> float:
        return self._creation_s.get(place, 0.0)

    def _update(self, place: Holding, unit: Unit, now_s: float) -> None:
        before = self._open.get(place)
        tenant, task = (unit.task.tenant, unit.task.kind) if unit.task else (None, "")
        if before is None:
            self._created += 1
            name = f"{place}#{self._created}"
        elif (before.state, before.tenant, before.task) == (unit.state, tenant, task):
            return
        else:
            self._sink.put(replace(before, to_s=now_s))
            name = before.unit
            if before.state == State.CREATING:
                self._creation_s[place] = now_s - before.from_s
        row = UnitRecord(
            name, now_s, tenant=tenant, task=task, state=unit.state, **extent(place, self._board)
        )
        self._open[place] = row
        self._sink.put(row)


class Extent(TypedDict):
    """Place and size of an instance on the board."""

    start: int | None
    """None for a share, which has no place."""
    gpcs: float


def extent(holding: Holding, board: Board) -> Extent:
    """The place of an instance. A share has no place; its size is converted to GPCs."""
    if isinstance(holding, Share):
        return {"start": None, "gpcs": holding.percent / 100 * board.compute_slices}
    return {"start": holding.start, "gpcs": holding.gpcs}
