"""What the daemon writes down as it goes: seconds, windows, units, versions, events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import MigratorError
from migrator.core.problem import Problem
from migrator.execute.units import State, Unit
from migrator.observe.record_rows import (
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.observe.records import Records
from migrator.plan.plan_file import plan_to_json
from migrator.policies.policy import Decision
from migrator.runtime.labels import Labels
from migrator.runtime.tenant_run import TenantRun
from migrator.runtime.versions import Version
from migrator.runtime.window_clock import WindowClock
from migrator.serve.counts import Second
from migrator.serve.router import Router

_log = logging.getLogger(__name__)

Bands = Mapping[str, tuple[float, float, float]]
"""Per tenant: mean, low and high of what a slot was expected to bring."""


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
    _open: dict[tuple[int, int], _Open] = field(default_factory=dict)
    _lives: int = 0
    _window: WindowRecord | None = None
    _before: dict[str, float] = field(default_factory=dict)
    _second: int = 0
    _warming: set[str] = field(default_factory=set)
    _reconfiguring: dict[str, int] = field(default_factory=dict)
    _forecast: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    _forecast_from_s: float = 0.0

    def begin_window(self, policy: str, forecaster: str) -> None:
        """A window begins."""
        self._window = WindowRecord(self.clock.number, time.time(), policy, forecaster)
        self._before = {name: each.accuracy for name, each in self.tenants.items()}
        self._reconfiguring = dict.fromkeys(self.tenants, 0)
        self.records.put(self._window)

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
            self._foretold(problem)
        self.records.put(self._window)

    def slot(self, units: Iterable[Unit], until: int) -> dict[str, float]:
        """Another slot is over: its seconds are written; what came of each tenant is returned."""
        self.units(units)
        came = {}
        for name in self.tenants:
            seconds = self.router.counts[name].seconds(self._second or until - 1, until)
            came[name] = float(sum(each.received for each in seconds))
            for each in seconds:
                self._put_second(name, each)
        self._second = until
        return came

    def units(self, units: Iterable[Unit]) -> None:
        """What changed of the units since the last look."""
        now_s = time.time()
        seen = {(each.instance.start, each.instance.gpcs): each for each in units}
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
                place[0],
                place[1],
                unit.task.tenant if unit.task else None,
                unit.task.kind if unit.task else "",
                unit.state,
            )
            self._open[place] = _Open(row, state)
            self.records.put(row)
        self._warming = {
            each.task.tenant for each in seen.values() if each.task and each.state is State.WARMING
        }

    def overhead(self, place: tuple[int, int], parts_s: Mapping[str, float]) -> None:
        """What a unit took until it served."""
        known = self._open.get(place)
        if known is not None:
            known.row = replace(known.row, parts_s=dict(parts_s))
            self.records.put(known.row)

    def version(self, tenant: str, number: int, accuracy: float, adopted: bool, why: str) -> None:
        """A model was retrained, and takes over or not."""
        self.records.put(VersionRecord(tenant, number, time.time(), accuracy, adopted, why))
        self.event("model", f"{tenant}: {why}")

    def begin_version(self, tenant: str, version: Version) -> None:
        """What a tenant begins to serve with."""
        words = "the model it begins with"
        row = VersionRecord(tenant, version.number, time.time(), version.accuracy, True, words)
        self.records.put(row)

    def event(self, kind: str, words: str) -> None:
        """Something a person may want to know."""
        _log.info("%s: %s", kind, words)
        self.records.event(kind, words)

    def end_window(self, first: int, last: int) -> None:
        """The window is over; `first` and `last` are seconds of the router's clock."""
        for name, tenant in self.tenants.items():
            self.records.put(self._tenant_window(name, tenant, first, last))
        if self._window is not None:
            self.records.put(replace(self._window, ended_s=time.time()))

    async def flush(self) -> None:
        """To the disk; a full one costs records, never service."""
        try:
            await asyncio.to_thread(self.records.flush)
        except MigratorError as error:
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
            while_reconfiguring=self._reconfiguring.get(name, 0),
            accuracy_before=self._before.get(name),
            accuracy_after=tenant.accuracy,
            accuracy_estimated=tenant.retraining.expected if tenant.retraining else None,
            version=tenant.version.number if tenant.version else None,
        )

    def _put_second(self, name: str, each: Second) -> None:
        if name in self._warming:
            self._reconfiguring[name] = self._reconfiguring.get(name, 0) + each.late + each.dropped
        at = int((each.second - self._forecast_from_s) / self.clock.slot_s)
        ahead = self._forecast.get(name)
        band: tuple[float | None, float | None, float | None] = (None, None, None)
        if ahead is not None and 0 <= at < ahead.shape[1]:
            values = ahead[:, at] / self.clock.slot_s
            low, high = np.quantile(values, (0.1, 0.9))
            band = (float(values.mean()), float(low), float(high))
        self.records.put(
            SecondRecord(
                name,
                each.second - self._first_second(),
                each.received,
                each.in_time,
                each.late,
                each.dropped,
                *band,
            )
        )

    def _first_second(self) -> int:
        return int(self.clock.started_s)

    def _foretold(self, problem: Problem) -> None:
        self._forecast = {each.name: np.asarray(each.received) for each in problem.tenants}
        left_s = problem.slots * self.clock.slot_s
        self._forecast_from_s = self.clock.began_s + self.clock.window_s - left_s

    def _named(self, place: tuple[int, int]) -> str:
        self._lives += 1
        return f"{place[1]}g@{place[0]}#{self._lives}"

    def _close(self, place: tuple[int, int], now_s: float) -> None:
        known = self._open.pop(place)
        self.records.put(replace(known.row, to_s=now_s))
