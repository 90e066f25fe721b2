"""Writes the records of a run: seconds, windows, plans, units, versions, retrainings and events.

It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from migrator.control.observation import Decision
from migrator.control.tenant_state import TenantState
from migrator.control.units import State, Unit
from migrator.core.catalogue import Board
from migrator.core.errors import MigratorError
from migrator.core.problem import Holding, Plan, Share
from migrator.learn.retraining import HAND_OVER
from migrator.live.context import Context
from migrator.live.instruments import ADOPTED, REFUSED, Decisions
from migrator.live.outcomes import Forecasts, Goodput, SecondRows
from migrator.live.training import TrainingResult
from migrator.live.versions import Version
from migrator.plan.plan_file import plan_to_json
from migrator.records.rows import (
    ActionRecord,
    PlanRecord,
    RetrainingRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.runs import held_blocks
from migrator.records.store import Records

_log = logging.getLogger(__name__)


class Recorder:
    """Writes the records of one run, and the log lines and counters that go with them."""

    def __init__(self, context: Context) -> None:
        clock, tenants, router = context.clock, context.tenants, context.router
        self._context, self._records = context, context.records
        self._clock, self._tenants, self._router = clock, tenants, router
        self._instruments = context.instruments
        self.goodput = Goodput(router.counts, tenants, clock, context.labels)
        self.forecasts = Forecasts(clock)
        self.seconds = SecondRows(context.records, router, clock, self.goodput, self.forecasts)
        self.decisions = Decisions(context.instruments, clock, context.scenario.policy)
        self._units = _UnitRows(context.records, context.board)
        self._window: WindowRecord | None = None
        self._accuracy_before: dict[str, float] = {}
        self._written_until = 0
        """The first second of the router's clock that is not written yet."""
        self._reason = ""
        self.plans_followed = 0
        self.last_plan: Plan | None = None
        """The plan that is being followed; None if there is none, or the policy does not plan."""
        self.predicted_goodput: float | None = None
        """What that plan is expected to reach."""
        self.last_plan_s: float | None = None
        """When the last decision took effect."""
        self._retrainings: dict[str, RetrainingRecord] = {}
        self._trained: dict[str, _Trained] = {}
        self._refused_in: dict[str, int] = {}
        """The last window in which a tenant's labels were refused."""

    def begin_window(self) -> None:
        scenario = self._context.scenario
        self._window = WindowRecord(
            self._clock.number, time.time(), scenario.policy, scenario.forecaster
        )
        self._accuracy_before = {name: each.accuracy for name, each in self._tenants.items()}
        self.seconds.reconfiguring.clear()
        self._records.put(self._window)

    def end_slot(self) -> dict[str, float]:
        """Record the seconds of a slot that has ended. Returns the requests by tenant."""
        self.update_units()
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
        self.forecasts.compare(received)
        return received

    def end_window(self) -> None:
        first = int(self._clock.began_s)
        last = first + round(self._clock.window_s)
        for name, tenant in self._tenants.items():
            self._records.put(self._tenant_window(name, tenant, first, last))
        if self._window is not None:
            self._records.put(replace(self._window, ended_s=time.time()))
        self.goodput.end_window()
        self.forecasts.end_window()

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
        self.decisions.plan_requested(why)

    def plan_followed(self, decision: Decision, seconds: float) -> None:
        """Record a plan that takes effect. `seconds`: its planning time."""
        self.plans_followed += 1
        self.last_plan, self.last_plan_s = decision.plan, self._clock.now_s()
        self.predicted_goodput = decision.predicted_goodput
        if self._window is not None:
            self._put_decision(self._window, decision, seconds)
        self.decisions.plan_followed(decision, seconds)
        if decision.problem is not None:
            self.forecasts.expect(decision.problem)

    def plan_refused(self, error: Exception) -> None:
        """Do nothing: `plan_failed` records the reason."""

    def plan_failed(self, why: str) -> None:
        """Record why there is no plan, or none that can be followed."""
        _log.warning("%s", why)
        self.event("plan", why)

    def update_units(self) -> None:
        """Record the units that changed since the last call."""
        self._units.update(self._context.executor.units)

    def overhead(self, place: Holding, parts_s: Mapping[str, float]) -> None:
        """Record how long a unit took until it served."""
        self.update_units()
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

    def training_took(
        self,
        tenant: str,
        window: int,
        instance: Holding,
        result: TrainingResult,
        planned_s: float,
    ) -> None:
        """Record how long the retraining of a window took, beside its expected duration, both
        without the start of its process."""
        seconds = result.training_s
        words = (
            f"{tenant}: retraining on {instance} took {seconds:.1f} s, planned {planned_s:.1f} s"
        )
        fields = {"seconds": round(seconds, 3), "planned_s": round(planned_s, 3)}
        self.event("retraining", words, tenant=tenant, **fields)
        self._trained[tenant] = _Trained(window, **fields, parts_s=dict(result.parts_s))

    def handed_over(self, tenant: str, seconds: float) -> None:
        """Record how long the workers took to serve the newest retrained model."""
        trained = self._trained.get(tenant)
        if trained is None:
            return
        trained.parts_s[HAND_OVER] = round(seconds, 3)
        row = self._retrainings.get(tenant)
        if row is not None and row.window == trained.window and row.parts_s:
            self._retrainings[tenant] = row = replace(row, parts_s=dict(trained.parts_s))
            self._records.put(row)

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
        for path in filter(None, kept):
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
        self._records.put(window)
        self._records.put(
            PlanRecord(
                self._clock.number,
                time.time(),
                slot,
                self._reason,
                decision.predicted_goodput,
                seconds,
                plan.gap if plan and math.isfinite(plan.gap) else None,
                held_blocks(decision.slots, self._context.board, slot, self._clock.slots),
            )
        )

    def _put_retraining(self, name: str) -> None:
        """Record the progress of a retraining if it changed."""
        job, known = self._tenants[name].retraining, self._retrainings.get(name)
        if job is None:
            return
        row = RetrainingRecord(
            job.window, name, time.time(), job.phase, round(job.progress, 3), job.expected
        )
        trained = self._trained.get(name)
        if trained is not None and trained.window == job.window:
            row = replace(
                row,
                planned_s=trained.planned_s,
                taken_s=trained.seconds,
                parts_s=dict(trained.parts_s),
            )
        if known is None or replace(known, at_s=row.at_s) != row:
            self._retrainings[name] = row
            self._records.put(row)

    def _tenant_window(
        self, name: str, tenant: TenantState, first: int, last: int
    ) -> TenantWindowRecord:
        seconds = self._router.counts[name].seconds(first, last)
        in_time = sum(each.in_time for each in seconds)
        correct = self.goodput.correct(name, fewest=1)
        return TenantWindowRecord(
            self._clock.number,
            name,
            received=sum(each.received for each in seconds),
            in_time=in_time,
            late=sum(each.late for each in seconds),
            dropped=sum(each.dropped for each in seconds),
            failed=sum(each.failed for each in seconds),
            goodput=in_time * correct,
            wrong=in_time * (1 - correct),
            labelled=self._context.labels.counts(name, self._clock.number).labelled,
            while_reconfiguring=self.seconds.reconfiguring[name],
            accuracy_before=self._accuracy_before.get(name),
            accuracy_after=tenant.accuracy,
            accuracy_estimated=tenant.retraining.expected if tenant.retraining else None,
            version=tenant.version.number if tenant.version else None,
        )


@dataclass
class _Trained:
    """Durations of a tenant's last retraining."""

    window: int
    seconds: float
    planned_s: float
    parts_s: dict[str, float]


class _UnitRows:
    """Writes a row for every state of every unit."""

    def __init__(self, records: Records, board: Board) -> None:
        self._records, self._board = records, board
        self._open: dict[Holding, UnitRecord] = {}
        self._created = 0
        self.warming: set[str] = set()
        """Tenants with an instance that is not warm yet."""

    def update(self, units: Iterable[Unit]) -> None:
        now_s = time.time()
        seen = {each.bare: each for each in units}
        for place in [each for each in self._open if each not in seen]:
            self._records.put(replace(self._open.pop(place), to_s=now_s))
        for place, unit in seen.items():
            self._update(place, unit, now_s)
        self.warming = {
            each.task.tenant for each in seen.values() if each.task and each.state is State.WARMING
        }

    def add_overhead(self, place: Holding, parts_s: Mapping[str, float]) -> None:
        known = self._open.get(place)
        if known is not None:
            self._open[place] = row = replace(known, parts_s=dict(parts_s))
            self._records.put(row)

    def _update(self, place: Holding, unit: Unit, now_s: float) -> None:
        known = self._open.get(place)
        tenant, task = (unit.task.tenant, unit.task.kind) if unit.task else (None, "")
        if known is None:
            self._created += 1
            name = f"{place}#{self._created}"
        elif (known.state, known.tenant, known.task) == (unit.state, tenant, task):
            return
        else:
            self._records.put(replace(known, to_s=now_s))
            name = known.unit
        row = UnitRecord(
            name, now_s, tenant=tenant, task=task, state=unit.state, **extent(place, self._board)
        )
        self._open[place] = row
        self._records.put(row)


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
