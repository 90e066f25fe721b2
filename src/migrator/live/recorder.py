"""What the daemon writes down as it goes: seconds, windows, units, versions, events."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from migrator.control.units import State, Unit
from migrator.core.catalogue import Board
from migrator.core.errors import MigratorError
from migrator.core.share import Holding, Share
from migrator.live.labels import Labels
from migrator.live.second_rows import SecondRows
from migrator.live.tallies import Tallies
from migrator.live.tenant_run import TenantRun
from migrator.live.versions import Version
from migrator.live.window_clock import WindowClock
from migrator.plan.plan_file import plan_to_json
from migrator.policies.policy import Decision
from migrator.records.held_blocks import held_blocks
from migrator.records.rows import (
    ActionRecord,
    PlanRecord,
    RetrainingRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.store import Records
from migrator.serve.router import Router

_log = logging.getLogger(__name__)


@dataclass
class _Open:
    """A unit in a state, not yet left."""

    row: UnitRecord
    state: tuple[State, str]


@dataclass
class Recorder:
    """Turns what happens into rows; nothing here decides anything."""

    records: Records
    router: Router
    labels: Labels
    clock: WindowClock
    tenants: Mapping[str, TenantRun]
    board: Board
    tallies: Tallies = field(default_factory=Tallies)
    _open: dict[Holding, _Open] = field(default_factory=dict)
    _lives: int = 0
    _window: WindowRecord | None = None
    _before: dict[str, float] = field(default_factory=dict)
    _second: int = 0
    _warming: set[str] = field(default_factory=set)
    _reason: str = ""
    _trained: dict[str, RetrainingRecord] = field(default_factory=dict)
    _refused: dict[str, int] = field(default_factory=dict)
    """The last window in which a tenant's labels were refused."""

    def __post_init__(self) -> None:
        self.seconds = SecondRows(self.records, self.router, self.labels, self.clock, self.tenants)

    def begin_window(self, policy: str, forecaster: str) -> None:
        """A window begins."""
        self._window = WindowRecord(self.clock.number, time.time(), policy, forecaster)
        self._before = {name: each.accuracy for name, each in self.tenants.items()}
        self.seconds.begin_window()
        self.records.put(self._window)

    def asked(self, why: str) -> None:
        """The policy is asked; the next plan is there for this reason."""
        self._reason = why
        self.event("plan", f"asked for a plan: {why}")

    def decided(self, decision: Decision, seconds: float) -> None:
        """The window's plan is there, or another one inside it."""
        if self._window is None:
            return
        first = self._window.plan_s is None
        plan, problem = decision.plan, decision.problem
        self._window = replace(
            self._window,
            plan_s=seconds if first else self._window.plan_s,
            replans=self._window.replans + (not first),
        )
        if first and plan is not None and problem is not None:
            told = plan_to_json(plan)
            self._window = replace(self._window, plan=told, predicted_goodput=plan.goodput)
        if problem is not None:
            self.seconds.foretold(problem)
        self.records.put(self._window)
        self._put_plan(decision, seconds)

    def slot(self, units: Iterable[Unit], until: int) -> dict[str, float]:
        """Another slot is over: its seconds are written; what came of each tenant is returned."""
        self.units(units)
        came = {}
        for name in self.tenants:
            seconds = self.router.counts[name].seconds(self._second or until - 1, until)
            came[name] = float(sum(each.received for each in seconds))
            for each in seconds:
                self.seconds.put(name, each, warming=name in self._warming)
            self._put_retraining(name)
        self.seconds.settle(self._second)
        self._second = until
        return came

    def units(self, units: Iterable[Unit]) -> None:
        """What changed of the units since the last look."""
        now_s = time.time()
        seen = {each.bare: each for each in units}
        for place in [each for each in self._open if each not in seen]:
            self._close(place, now_s)
        for place, unit in seen.items():
            state = (unit.state, str(unit.task or ""))
            known = self._open.get(place)
            if known is not None and known.state == state:
                continue
            life = known.row.unit if known is not None else self._named(place)
            if known is not None:
                self._close(place, now_s)
            row = UnitRecord(
                life,
                now_s,
                tenant=unit.task.tenant if unit.task else None,
                task=unit.task.kind if unit.task else "",
                state=unit.state,
                **extent(place, self.board),
            )
            self._open[place] = _Open(row, state)
            self.records.put(row)
        self._warming = {
            each.task.tenant for each in seen.values() if each.task and each.state is State.WARMING
        }

    def overhead(self, place: Holding, parts_s: Mapping[str, float]) -> None:
        """What a unit took until it served."""
        known = self._open.get(place)
        if known is not None:
            known.row = replace(known.row, parts_s=dict(parts_s))
            self.records.put(known.row)

    def version(self, tenant: str, number: int, accuracy: float, adopted: bool, why: str) -> None:
        """A model was retrained, and takes over or not."""
        self.records.put(VersionRecord(tenant, number, time.time(), accuracy, adopted, why))
        self.event("model", f"{tenant}: {why}", tenant=tenant, version=number, adopted=adopted)

    def begin_version(
        self, tenant: str, version: Version, words: str = "the model it begins with"
    ) -> None:
        """What a tenant begins to serve with, or goes back to."""
        row = VersionRecord(tenant, version.number, time.time(), version.accuracy, True, words)
        self.records.put(row)

    def action(self, row: ActionRecord) -> None:
        """Something that an operator did, or wanted to."""
        self.records.put(row)
        self.tallies.actions[row.kind, row.outcome] += 1
        fields = {"action": row.kind, "tenant": row.tenant, "who": row.who, "outcome": row.outcome}
        words = f"{row.kind} from the {row.who}, {row.outcome}: {row.words}"
        self.event("action", words, **fields)

    def report_damaged(self, *kept: Path | None) -> None:
        """Files that were damaged when they were opened, by where they are kept now."""
        for path in kept:
            if path is not None:
                name = f"{path.name.partition('.db.')[0]}.db"
                words = f"{name} could not be read and is kept as {path}; a new one was begun"
                self.tallies.damaged[name] += 1
                self._log_and_put(logging.ERROR, "damaged", words, {"file": name})

    def event(self, kind: str, words: str, **fields: object) -> None:
        """Something a person may want to know; `fields` go into the log line only."""
        self._log_and_put(logging.INFO, kind, words, fields)

    def _log_and_put(self, level: int, kind: str, words: str, fields: Mapping[str, object]) -> None:
        _log.log(level, "%s: %s", kind, words, extra={**self._fields(kind), **fields})
        self.records.event(kind, words)

    def label_refused(self, tenant: str, why: str) -> None:
        """A label had no space; one event per tenant and window."""
        if self._refused.get(tenant) != self.clock.number:
            self._refused[tenant] = self.clock.number
            self.event("labels", f"{tenant}: labels are refused: {why}", tenant=tenant)

    def end_window(self, first: int, last: int) -> None:
        """The window is over; `first` and `last` are seconds of the router's clock."""
        for name, tenant in self.tenants.items():
            self.records.put(self._tenant_window(name, tenant, first, last))
        if self._window is not None:
            self.records.put(replace(self._window, ended_s=time.time()))

    def _fields(self, decision: str) -> dict[str, object]:
        """What every log line of an event has."""
        return {"decision": decision, "window": self.clock.number, "slot": self.clock.slot}

    async def flush(self) -> None:
        """To the disk; a full one costs records, never service."""
        try:
            await asyncio.to_thread(self.records.flush)
        except MigratorError as error:
            self.tallies.unwritten += 1
            _log.warning("records could not be written: %s", error)

    def _tenant_window(
        self, name: str, tenant: TenantRun, first: int, last: int
    ) -> TenantWindowRecord:
        seconds = self.router.counts[name].seconds(first, last)
        in_time = sum(each.in_time for each in seconds)
        counts = self.labels.counts(name, self.clock.number)
        right = 1 - counts.wrong / counts.judged if counts.judged else tenant.accuracy
        return TenantWindowRecord(
            self.clock.number,
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
            accuracy_before=self._before.get(name),
            accuracy_after=tenant.accuracy,
            accuracy_estimated=tenant.retraining.expected if tenant.retraining else None,
            version=tenant.version.number if tenant.version else None,
        )

    def _put_plan(self, decision: Decision, seconds: float) -> None:
        plan, slot = decision.plan, self.clock.slot
        blocks = held_blocks(decision.slots, self.board, slot, self.clock.slots)
        self.records.put(
            PlanRecord(
                self.clock.number,
                time.time(),
                slot,
                self._reason,
                plan.goodput if plan else None,
                seconds,
                plan.gap if plan and math.isfinite(plan.gap) else None,
                blocks,
            )
        )

    def _put_retraining(self, name: str) -> None:
        """Only where something changed."""
        job, known = self.tenants[name].retraining, self._trained.get(name)
        if job is None:
            return
        progress = round(job.progress, 3)
        if known is None or (known.window, known.phase, known.progress) != (
            job.window,
            job.phase,
            progress,
        ):
            row = RetrainingRecord(job.window, name, time.time(), job.phase, progress, job.expected)
            self._trained[name] = row
            self.records.put(row)

    def _named(self, place: Holding) -> str:
        self._lives += 1
        return f"{place}#{self._lives}"

    def _close(self, place: Holding, now_s: float) -> None:
        known = self._open.pop(place)
        self.records.put(replace(known.row, to_s=now_s))


class Extent(TypedDict):
    """Where on the board something is, and how large."""

    start: int | None
    """None: a share, which has no place."""
    gpcs: float


def extent(holding: Holding, board: Board) -> Extent:
    """An instance's place; the size of a share as if it were one."""
    if isinstance(holding, Share):
        return {"start": None, "gpcs": holding.percent / 100 * board.compute_slices}
    return {"start": holding.start, "gpcs": holding.gpcs}
