"""Writes the records of a run: seconds, windows, plans, units, versions, retrainings and events.

It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from migrator.control.observation import Decision
from migrator.control.tenant_state import FEWEST_LABELS, TenantState
from migrator.control.units import State, Unit
from migrator.control.window_clock import WindowClock
from migrator.core.catalogue import Board
from migrator.core.errors import MigratorError
from migrator.core.plan import Plan
from migrator.core.problem import Problem
from migrator.core.share import Holding, Share
from migrator.live.context import Context
from migrator.live.decisions import Decisions
from migrator.live.forecast_error import ForecastError
from migrator.live.instruments import ADOPTED, REFUSED
from migrator.live.labels import LabelCounts, Labels
from migrator.live.training import TrainingResult
from migrator.live.versions import Version
from migrator.plan.plan_file import plan_to_json
from migrator.records.blocks import held_blocks
from migrator.records.rows import (
    ActionRecord,
    PlanRecord,
    RetrainingRecord,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.store import Records
from migrator.serve.router.queue import Counts, Second
from migrator.serve.router.router import Router

_SETTLED_S = 10
"""Seconds after which a request's answer is not waited for."""
_TenantSecond = tuple[str, int]
"""A tenant and a second of the router's clock."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LastPlan:
    """The plan that is being followed."""

    since_s: float
    plan: Plan | None
    """None if the policy does not plan."""


class Recorder:
    """Writes the records of one run, and the log lines and counters that go with them."""

    def __init__(self, context: Context) -> None:
        clock, tenants, router = context.clock, context.tenants, context.router
        labels, records = context.resources.labels, context.resources.records
        scenario = context.serving.live.scenario
        self._context, self._scenario = context, scenario
        self._clock, self._tenants, self._router = clock, tenants, router
        self._labels, self._records, self._instruments = labels, records, context.instruments
        self.seconds = SecondRows(records, router, labels, clock, tenants)
        self.goodput = Goodput(router.counts, tenants, clock, labels.counts)
        self.forecast_error = ForecastError(clock)
        self.decisions = Decisions(context.instruments, clock, scenario.policy)
        self._units = _UnitRows(records, scenario.board)
        self._window: WindowRecord | None = None
        self._accuracy_before: dict[str, float] = {}
        self._written_until = 0
        """The first second of the router's clock that is not written yet."""
        self._reason = ""
        self.plans_followed = 0
        self.last_plan: LastPlan | None = None
        self._retrainings: dict[str, RetrainingRecord] = {}
        self._refused_in: dict[str, int] = {}
        """The last window in which a tenant's labels were refused."""

    def begin_window(self) -> None:
        """Record that a window begins."""
        scenario = self._scenario
        self._window = WindowRecord(
            self._clock.number, time.time(), scenario.policy, scenario.forecaster
        )
        self._accuracy_before = {name: each.accuracy for name, each in self._tenants.items()}
        self.seconds.begin_window()
        self._records.put(self._window)

    def end_slot(self, units: Iterable[Unit]) -> dict[str, float]:
        """Record the seconds of a slot that has ended. Returns the requests by tenant."""
        self.units(units)
        until = int(self._router.clock())
        received = {}
        for name in self._tenants:
            first = self._written_until or until - 1
            seconds = self._router.counts[name].seconds(first, until)
            received[name] = float(sum(each.received for each in seconds))
            for each in seconds:
                self.seconds.put(name, each, warming=name in self._units.warming)
            self._put_retraining(name)
        self.seconds.settle(self._written_until)
        self._written_until = until
        self.forecast_error.slot(received)
        return received

    def end_window(self) -> None:
        """Record that the clock's window has ended."""
        first = int(self._clock.began_s)
        last = first + round(self._clock.window_s)
        for name, tenant in self._tenants.items():
            self._records.put(self._tenant_window(name, tenant, first, last))
        if self._window is not None:
            self._records.put(replace(self._window, ended_s=time.time()))
        self.goodput.end_window()
        self.forecast_error.end_window()

    async def flush(self) -> None:
        """Write to disk. If the disk is full, records are lost and serving continues."""
        try:
            await asyncio.to_thread(self._records.flush)
        except MigratorError as error:
            self._instruments.unwritten.inc()
            _log.warning("records could not be written: %s", error)

    def plan_requested(self, why: str) -> None:
        """Record why the policy is asked. The next plan gets this reason."""
        self._reason = why
        self.event("plan", f"asked for a plan: {why}")
        self.decisions.asked(why)

    def plan_followed(self, decision: Decision, seconds: float) -> None:
        """Record a plan that takes effect. `seconds`: its planning time."""
        self.plans_followed += 1
        self.last_plan = LastPlan(self._clock.now_s(), decision.plan)
        self._put_decision(decision, seconds)
        self.decisions.taken(decision, seconds)
        if decision.problem is not None:
            self.forecast_error.foretold(decision.problem)

    def plan_refused(self, error: Exception) -> None:
        """Do nothing: `plan_failed` records the reason."""

    def plan_failed(self, why: str) -> None:
        """Record why there is no plan, or none that can be followed."""
        _log.warning("%s", why)
        self.event("plan", why)

    def units(self, units: Iterable[Unit]) -> None:
        """Record the units that changed since the last call."""
        self._units.update(units)

    def overhead(self, place: Holding, parts_s: Mapping[str, float]) -> None:
        """Record how long a unit took until it served."""
        self._units.add_overhead(place, parts_s)

    def retrained(self, tenant: str, result: TrainingResult, version: Version | None) -> None:
        """Record the result of a retraining. `version`: the new version if it was adopted."""
        number = version.number if version else 0
        outcome = ADOPTED if result.adopted else REFUSED
        self._instruments.retrainings.labels(tenant, outcome).inc()
        self._records.put(
            VersionRecord(
                tenant, number, time.time(), result.accuracy_after, result.adopted, result.why
            )
        )
        words = f"{tenant}: {result.why}"
        self.event("model", words, tenant=tenant, version=number, adopted=result.adopted)

    def begin_version(
        self, tenant: str, version: Version, words: str = "the model it begins with"
    ) -> None:
        """Record that this version begins to serve a tenant, and why."""
        row = VersionRecord(tenant, version.number, time.time(), version.accuracy, True, words)
        self._records.put(row)

    def action(self, row: ActionRecord) -> None:
        """Record an operator's action and its outcome."""
        self._records.put(row)
        self._instruments.actions.labels(row.kind, row.outcome).inc()
        fields = {"action": row.kind, "tenant": row.tenant, "who": row.who, "outcome": row.outcome}
        words = f"{row.kind} from the {row.who}, {row.outcome}: {row.words}"
        self.event("action", words, **fields)

    def label_refused(self, tenant: str, why: str) -> None:
        """Record that a label was refused, once per tenant and window."""
        if self._refused_in.get(tenant) != self._clock.number:
            self._refused_in[tenant] = self._clock.number
            self.event("labels", f"{tenant}: labels are refused: {why}", tenant=tenant)

    def damaged_files(self, *kept: Path | None) -> None:
        """Record which files were damaged when they were opened. `kept`: copies of them."""
        for path in kept:
            if path is not None:
                name = f"{path.name.partition('.db.')[0]}.db"
                words = f"{name} is damaged and was kept as {path}; a new file was created"
                self._instruments.damaged.labels(name).inc()
                self._put_event(logging.ERROR, "damaged", words, {"file": name})

    def event(self, kind: str, words: str, **fields: object) -> None:
        """Record an event and log it. `fields` go into the log line only."""
        self._put_event(logging.INFO, kind, words, fields)

    def _put_event(self, level: int, kind: str, words: str, fields: Mapping[str, object]) -> None:
        common = {"decision": kind, "window": self._clock.number, "slot": self._clock.slot}
        _log.log(level, "%s: %s", kind, words, extra={**common, **fields})
        self._records.event(kind, words)

    def _put_decision(self, decision: Decision, seconds: float) -> None:
        if self._window is None:
            return
        plan, problem, slot = decision.plan, decision.problem, self._clock.slot
        first = self._window.plan_s is None
        self._window = replace(
            self._window,
            plan_s=seconds if first else self._window.plan_s,
            replans=self._window.replans + (not first),
        )
        if first and plan is not None and problem is not None:
            self._window = replace(
                self._window, plan=plan_to_json(plan), predicted_goodput=plan.goodput
            )
        if problem is not None:
            self.seconds.expect(problem)
        self._records.put(self._window)
        self._records.put(
            PlanRecord(
                self._clock.number,
                time.time(),
                slot,
                self._reason,
                plan.goodput if plan else None,
                seconds,
                plan.gap if plan and math.isfinite(plan.gap) else None,
                held_blocks(decision.slots, self._scenario.board, slot, self._clock.slots),
            )
        )

    def _put_retraining(self, name: str) -> None:
        """Record the progress of a retraining if it changed."""
        job, known = self._tenants[name].retraining, self._retrainings.get(name)
        if job is None:
            return
        state = job.window, job.phase, round(job.progress, 3)
        if known is None or (known.window, known.phase, known.progress) != state:
            window, phase, progress = state
            row = RetrainingRecord(window, name, time.time(), phase, progress, job.expected)
            self._retrainings[name] = row
            self._records.put(row)

    def _tenant_window(
        self, name: str, tenant: TenantState, first: int, last: int
    ) -> TenantWindowRecord:
        seconds = self._router.counts[name].seconds(first, last)
        in_time = sum(each.in_time for each in seconds)
        counts = self._labels.counts(name, self._clock.number)
        right = tenant.accuracy if counts.accuracy is None else counts.accuracy
        return TenantWindowRecord(
            self._clock.number,
            name,
            received=sum(each.received for each in seconds),
            in_time=in_time,
            late=sum(each.late for each in seconds),
            dropped=sum(each.dropped for each in seconds),
            failed=sum(each.failed for each in seconds),
            goodput=in_time * right,
            wrong=in_time * (1 - right),
            labelled=counts.labelled,
            while_reconfiguring=self.seconds.reconfiguring.get(name, 0),
            accuracy_before=self._accuracy_before.get(name),
            accuracy_after=tenant.accuracy,
            accuracy_estimated=tenant.retraining.expected if tenant.retraining else None,
            version=tenant.version.number if tenant.version else None,
        )


@dataclass
class _OpenUnit:
    """A unit in its current state."""

    row: UnitRecord
    state: tuple[State, str]


class _UnitRows:
    """Writes a row for every state of every unit."""

    def __init__(self, records: Records, board: Board) -> None:
        self._records, self._board = records, board
        self._open: dict[Holding, _OpenUnit] = {}
        self._created = 0
        self.warming: set[str] = set()
        """Tenants with an instance that is not warm yet."""

    def update(self, units: Iterable[Unit]) -> None:
        now_s = time.time()
        seen = {each.bare: each for each in units}
        for place in [each for each in self._open if each not in seen]:
            self._close(place, now_s)
        for place, unit in seen.items():
            state = (unit.state, str(unit.task or ""))
            known = self._open.get(place)
            if known is not None and known.state == state:
                continue
            name = known.row.unit if known is not None else self._new_name(place)
            if known is not None:
                self._close(place, now_s)
            row = UnitRecord(
                name,
                now_s,
                tenant=unit.task.tenant if unit.task else None,
                task=unit.task.kind if unit.task else "",
                state=unit.state,
                **extent(place, self._board),
            )
            self._open[place] = _OpenUnit(row, state)
            self._records.put(row)
        self.warming = {
            each.task.tenant for each in seen.values() if each.task and each.state is State.WARMING
        }

    def add_overhead(self, place: Holding, parts_s: Mapping[str, float]) -> None:
        known = self._open.get(place)
        if known is not None:
            known.row = replace(known.row, parts_s=dict(parts_s))
            self._records.put(known.row)

    def _new_name(self, place: Holding) -> str:
        self._created += 1
        return f"{place}#{self._created}"

    def _close(self, place: Holding, now_s: float) -> None:
        known = self._open.pop(place)
        self._records.put(replace(known.row, to_s=now_s))


@dataclass
class SecondRows:
    """Writes a row for every second of every tenant: requests, outcomes, forecast.

    A second is written when it is over, and again when its last requests are answered.
    """

    records: Records
    router: Router
    labels: Labels
    clock: WindowClock
    tenants: Mapping[str, TenantState]
    reconfiguring: dict[str, int] = field(default_factory=dict)
    """Requests of this window lost while an instance of their tenant was not warm, by tenant."""
    _forecast: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    _forecast_from_s: float = 0.0
    _unsettled: dict[_TenantSecond, SecondRecord] = field(default_factory=dict)
    """Seconds that were written before all their requests were answered."""
    _accuracy: dict[str, float] = field(default_factory=dict)
    _cold: set[_TenantSecond] = field(default_factory=set)
    """Unsettled seconds in which an instance of the tenant was not warm."""

    def begin_window(self) -> None:
        """Reset the counts of the window."""
        self.reconfiguring = dict.fromkeys(self.tenants, 0)

    def expect(self, problem: Problem) -> None:
        """Use the forecast of this problem for the following seconds."""
        self._forecast = {each.name: np.asarray(each.received) for each in problem.tenants}
        left_s = problem.slots * self.clock.slot_s
        self._forecast_from_s = self.clock.began_s + self.clock.window_s - left_s

    def put(self, name: str, each: Second, *, warming: bool) -> None:
        """Write a second that is over."""
        if warming:
            self._cold.add((name, each.second))
        mean, low, high = self._band(name, each.second)
        second = each.second - int(self.clock.started_s)
        row = SecondRecord(name, second, forecast_mean=mean, forecast_low=low, forecast_high=high)
        self._write(name, each, row)

    def settle(self, before: int) -> None:
        """Write earlier seconds again if requests were missing."""
        for (name, second), row in list(self._unsettled.items()):
            if second >= before:
                continue
            del self._unsettled[name, second]
            (each,) = self.router.counts[name].seconds(second, second + 1)
            self._write(name, each, row)
            if second < before - _SETTLED_S:
                self._unsettled.pop((name, second), None)
                self._cold.discard((name, second))

    def _write(self, name: str, each: Second, row: SecondRecord) -> None:
        lost = each.late + each.dropped if (name, each.second) in self._cold else 0
        self.reconfiguring[name] = self.reconfiguring.get(name, 0) + lost - row.reconfiguring
        written = replace(
            row,
            received=each.received,
            in_time=each.in_time,
            late=each.late,
            dropped=each.dropped,
            failed=each.failed,
            wrong=round(each.in_time * (1 - self._right(name)), 3),
            reconfiguring=lost,
        )
        self.records.put(written)
        if each.open > 0:
            self._unsettled[name, each.second] = written
        else:
            self._cold.discard((name, each.second))

    def _right(self, name: str) -> float:
        """The share of correct answers: by the labels of this window if there are enough."""
        counts = self.labels.counts(name, self.clock.number)
        if counts.accuracy is not None and counts.judged >= FEWEST_LABELS:
            return counts.accuracy
        tenant = self.tenants.get(name)
        if tenant is not None:
            self._accuracy[name] = tenant.accuracy
        return self._accuracy[name]  # the last known one of a removed tenant

    def _band(self, name: str, second: int) -> tuple[float | None, float | None, float | None]:
        """Mean, low and high of the forecast for a second."""
        at = int((second - self._forecast_from_s) / self.clock.slot_s)
        ahead = self._forecast.get(name)
        if ahead is None or not 0 <= at < ahead.shape[1]:
            return None, None, None
        values = ahead[:, at] / self.clock.slot_s
        low, high = np.quantile(values, (0.1, 0.9))
        return float(values.mean()), float(low), float(high)


class Goodput:
    """Goodput of all tenants since the daemon started, as a counter that never decreases.

    It is the requests answered in time, times the share of correct answers: by the labels of the
    window if there are enough, else by the model's accuracy. A window that is over counts as in the
    records: by its labels, however few.
    """

    def __init__(
        self,
        counts: Mapping[str, Counts],
        tenants: Mapping[str, TenantState],
        clock: WindowClock,
        labels: Callable[[str, int], LabelCounts],
    ) -> None:
        """`labels`: counts of a tenant in a window."""
        self._counts, self._tenants, self._clock, self._labels = counts, tenants, clock, labels
        # tenants come and go while the daemon runs
        self._before: defaultdict[str, float] = defaultdict(float)
        self._in_time: defaultdict[str, int] = defaultdict(int)
        self._highest: defaultdict[str, float] = defaultdict(float)

    def measured(self, tenant: str) -> float | None:
        """Accuracy by the labels of this window; None if no label has an answer to compare with."""
        return self._labels(tenant, self._clock.number).accuracy

    def end_window(self) -> None:
        """Close the window. Call this before the clock advances."""
        for tenant in self._tenants:
            self._before[tenant] = self._now(tenant, fewest=1)
            self._in_time[tenant] = self._counts[tenant].total.in_time

    def so_far(self, tenant: str) -> float:
        """The goodput so far. It stays constant while labels show less than was reported before."""
        self._highest[tenant] = max(self._highest[tenant], self._now(tenant))
        return self._highest[tenant]

    def _now(self, tenant: str, fewest: int = FEWEST_LABELS) -> float:
        counts = self._labels(tenant, self._clock.number)
        measured = counts.accuracy if counts.judged >= fewest else None
        right = self._tenants[tenant].accuracy if measured is None else measured
        in_window = self._counts[tenant].total.in_time - self._in_time[tenant]
        return self._before[tenant] + in_window * right


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
