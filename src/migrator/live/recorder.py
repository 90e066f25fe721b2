"""The recorder of the daemon: the rows of its run, and the log lines and counters beside them.

To what every run records it adds the requests that the router counted, and operators' actions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from migrator.control.events import Event, Instruction
from migrator.control.observation import Decision
from migrator.control.retraining import TenantRetraining
from migrator.control.tenant_state import TenantState
from migrator.core.action import Outcome
from migrator.core.errors import MigratorError
from migrator.core.evidence import Accuracy, Evidence
from migrator.io.database import FileMovedError
from migrator.live.context import Context
from migrator.live.decisions import Decisions
from migrator.live.goodput import correct_of, measured_share
from migrator.live.instruments import ADOPTED, REFUSED
from migrator.live.second_rows import SecondRows
from migrator.live.training import TrainingResult
from migrator.live.versions import Version
from migrator.records import recorder
from migrator.records.rows import ActionRecord, TenantWindowRecord
from migrator.serving.queue import Counted

_log = logging.getLogger(__name__)


class LiveRecorder(recorder.Recorder):
    """Writes the records of one daemon, and the log lines and counters that go with them."""

    def __init__(self, context: Context) -> None:
        clock, tenants, router = context.clock, context.tenants, context.router
        names = context.scenario.policy, context.scenario.forecaster
        super().__init__(
            context.records, context.board, names, clock, tenants, context.executor, time.time
        )
        self._context, self._records, self._router = context, context.records, router
        self._instruments = context.instruments
        self.seconds = SecondRows(context.records, router, clock, self.forecasts)
        self.decisions = Decisions(
            context.instruments, clock, context.scenario.policy, router.tracing
        )
        self._accuracy_before: dict[str, float] = {}
        self._ended: dict[str, tuple[TenantWindowRecord, Counted]] = {}
        """The rows of the last window, and the requests that arrived in it."""
        self._written_until = 0
        """The first second of the router's clock that is not written yet."""
        self.plans_followed = 0
        self.last: tuple[Decision, float] | None = None
        """The decision that is being followed, and when it took effect."""
        self._unwritten_because = ""
        """Why the last records could not be written; "" if they were."""
        self._refused_in: dict[str, int] = {}
        """The last window in which a tenant's labels were refused."""

    def accuracy(self, tenant: str) -> Accuracy:
        """The accuracy of the serving model: by the labels of this window's answers, else the one
        that plans rest on."""
        measured = self.measured(tenant)
        if measured is None:
            return self._tenants[tenant].model.accuracy
        return Accuracy(measured, Evidence.ANSWERS)

    def measured(self, tenant: str) -> float | None:
        """By the labels of this window's answers; None if they are few."""
        return measured_share(self._router.counts[tenant].window)

    def begin_window(self) -> None:
        self._accuracy_before = {name: tenant.accuracy for name, tenant in self._tenants.items()}
        self.seconds.reconfiguring.clear()
        super().begin_window()

    def end_slot(self) -> dict[str, float]:
        """Record the seconds of a slot that has ended. Returns the requests by tenant."""
        self.record_slot()
        until = int(self._router.clock())
        received = {}
        for name in self._tenants:
            first = self._written_until or until - 1
            seconds = self._router.counts[name].seconds(first, until)
            received[name] = float(sum(second.received for second in seconds))
            for second in seconds:
                self.seconds.put(name, second, warming=name in self._units.warming)
        self.settle()
        self._written_until = until
        self.forecasts.compare(received)
        return received

    def end_window(self) -> None:
        """Record the requests of a window that has ended."""
        self.settle()
        self._ended.clear()
        for name, tenant in self._tenants.items():
            counts = self._router.counts[name]
            row = self._tenant_window(name, tenant, counts.window)
            self._records.put(row)
            self._ended[name] = row, counts.window
            counts.begin_window()
            waits = self.why_not_retrained(name)
            if waits is not None:
                self._instruments.not_retrained.labels(name, waits.reason.value).inc()
        self.record_end_of_window(time.time())

    def settle(self) -> None:
        """Record seconds and the last window again if answers or labels came since."""
        self.seconds.settle(self._written_until)
        for name, (before, counted) in self._ended.items():
            row = replace(before, **_outcomes(counted))
            if row != before:
                self._records.put(row)
                self._ended[name] = row, counted

    async def flush(self) -> None:
        """Write to disk. If that fails, the newest records wait in memory and serving continues."""
        if self._context.batches is not None:
            await asyncio.to_thread(self._context.batches.flush)
        try:
            await asyncio.to_thread(self._records.flush)
        except MigratorError as error:
            self._instruments.unwritten.inc()
            if str(error) != self._unwritten_because:
                level = logging.ERROR if isinstance(error, FileMovedError) else logging.WARNING
                _log.log(level, "records could not be written: %s", error)
            self._unwritten_because = str(error)
            return
        if self._unwritten_because:
            _log.info("records are written again")
            self._unwritten_because = ""

    def plan_requested(self, reason: str) -> None:
        super().plan_requested(reason)
        self.decisions.plan_requested(reason)

    def plan_followed(self, decision: Decision, seconds: float) -> None:
        changed = self.record_decision(decision, seconds)
        self.plans_followed += 1
        self.last = decision, self._clock.now_s()
        self.decisions.plan_followed(decision, seconds, changed=changed)

    def instructed(self, instruction: Instruction) -> None:
        super().instructed(instruction)
        self.decisions.instructed(instruction)

    def ended(self, event: Event) -> None:
        super().ended(event)
        self.decisions.ended(event)

    def retrained(
        self,
        tenant: str,
        job: TenantRetraining,
        result: TrainingResult,
        version: Version | None,
    ) -> None:
        """Record the result of a retraining. `version`: the new version if it was adopted."""
        number = version.number if version else 0
        outcome = ADOPTED if result.adopted else REFUSED
        self._instruments.retrainings.labels(tenant, outcome).inc()
        why, fields = result.why, dict[str, object](version=number, adopted=result.adopted)
        if job.configuration:
            why = f"as {job.configuration!r}: {why}"
            fields["configuration"] = job.configuration
        self.put_version(tenant, number, result.accuracy_after, why, adopted=result.adopted)
        self.event("model", f"{tenant}: {why}", tenant=tenant, **fields)

    def begin_version(
        self, tenant: str, version: Version, message: str = "the model it begins with"
    ) -> None:
        """Record that this version begins to serve a tenant, and why."""
        self.put_version(tenant, version.number, version.accuracy, message)

    def action(self, row: ActionRecord) -> None:
        """Record an operator's action and its outcome."""
        self._records.put(row)
        self._instruments.actions.labels(row.kind, row.outcome).inc()
        fields = {"action": row.kind, "tenant": row.tenant, "who": row.who, "outcome": row.outcome}
        message = f"{row.kind} from the {row.who}, {row.outcome}: {row.words}"
        put = self.warn if row.outcome == Outcome.FAILED else self.event
        put("action", message, **fields)

    def label_refused(self, tenant: str, why: str) -> None:
        """Record that a label was refused, once per tenant and window."""
        if self._refused_in.get(tenant) != self._clock.number:
            self._refused_in[tenant] = self._clock.number
            self.warn("labels", f"{tenant}: labels are refused: {why}", tenant=tenant)

    def damaged_files(self, *kept: Path | None) -> None:
        """Record which files were damaged when they were opened. `kept`: copies of them."""
        for path in filter(None, kept):
            name = f"{path.name.partition('.db.')[0]}.db"
            message = f"{name} is damaged and was kept as {path}; a new file was created"
            self._instruments.damaged.labels(name).inc()
            self._put_event(logging.ERROR, "damaged", message, {"file": name})

    def _put_event(self, level: int, kind: str, words: str, fields: Mapping[str, object]) -> None:
        common = {"decision": kind, "window": self._clock.number, "slot": self._clock.slot}
        _log.log(level, "%s: %s", kind, words, extra={**common, **fields})
        super()._put_event(level, kind, words, fields)

    def _tenant_window(
        self, name: str, tenant: TenantState, counted: Counted
    ) -> TenantWindowRecord:
        return TenantWindowRecord(
            self._clock.number,
            name,
            **_outcomes(counted),
            labelled=self._context.labels.counts(name, self._clock.number).labelled,
            while_reconfiguring=self.seconds.reconfiguring[name],
            accuracy_before=self._accuracy_before.get(name),
            accuracy_after=tenant.accuracy,
            accuracy_estimated=tenant.retraining.expected if tenant.retraining else None,
            version=tenant.version.number if tenant.version else None,
            evidence=tenant.model.accuracy.evidence,
        )


def _outcomes(counted: Counted) -> dict[str, Any]:
    """The requests of a window by outcome, as the fields of its row."""
    correct = correct_of(counted)
    return {
        "received": counted.received,
        "in_time": counted.in_time,
        "late": counted.late,
        "dropped": counted.dropped,
        "failed": counted.failed,
        "goodput": correct,
        "wrong": None if correct is None else counted.in_time - correct,
    }
