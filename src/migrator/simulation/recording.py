"""The recorder of a simulated run: rows in memory, with the requests that the simulator served.

What became of requests is known per window, not per second. Forecasters that are chosen per tenant
are recorded as events.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from migrator.control.observation import Observation
from migrator.control.retraining import TenantRetraining
from migrator.control.tenant_state import TenantState
from migrator.control.window_clock import WindowClock
from migrator.core.evidence import Evidence
from migrator.core.preferences import Preferences
from migrator.core.problem import Holding
from migrator.core.scenario import Scenario
from migrator.records.outcome import TenantOutcome, WindowOutcome
from migrator.records.recorder import ControlledUnits, Recorder
from migrator.records.rows import (
    EventRecord,
    RunRecords,
    RunRow,
    SecondRecord,
    TenantWindowRecord,
)
from migrator.records.runs import SIMULATED
from migrator.records.simulated import BEGAN_S, RowsInMemory
from migrator.simulation.gpu import Spent

_FIRST_VERSION = "the model it begins with"
_RETRAINED = "retrained on the window's data"
_Band = tuple[float | None, float | None, float | None]
"""Mean, low and high of a forecast."""


class SimulatedRecorder(Recorder):
    """Records one simulated run in memory."""

    def __init__(
        self,
        scenario: Scenario,
        names: tuple[str, str],
        clock: WindowClock,
        tenants: Mapping[str, TenantState],
        executor: ControlledUnits,
    ) -> None:
        """`names`: of the policy and of the forecaster."""
        self._rows, self._scenario = RowsInMemory(), scenario
        super().__init__(
            self._rows,
            scenario.board,
            names,
            clock,
            tenants,
            executor,
            lambda: BEGAN_S + clock.now_s(),
        )
        self._bands: defaultdict[str, list[_Band]] = defaultdict(list)
        """Per tenant the forecast of every slot of the window so far."""
        self._versions = dict.fromkeys(tenants, 0)
        self._fluid: list[float | None] = []
        self._reconfigurations: defaultdict[str, list[int]] = defaultdict(list)

    def begin_run(self, accuracies: Mapping[str, float]) -> None:
        """Record the models that the run begins with."""
        for name, accuracy in accuracies.items():
            self._versions[name] = 1
            self.put_version(name, 1, accuracy, _FIRST_VERSION)

    def begin_window(self) -> None:
        super().begin_window()
        self._bands.clear()

    def end_slot(self) -> None:
        """Record a slot that has ended."""
        self.record_slot()
        middle_s = self._clock.slot_began_s + 0.5 * self._clock.slot_s
        for name in self._tenants:
            self._bands[name].append(self.forecasts.band(name, middle_s))

    def end_window(
        self, outcome: WindowOutcome, received: Mapping[str, NDArray[np.float64]]
    ) -> None:
        """Record the requests of a window that has ended. `received`: per tenant and slot."""
        began_s = BEGAN_S + outcome.window * self._clock.window_s
        for tenant in outcome.tenants:
            name = tenant.tenant
            self._rows.put(self._tenant_window(outcome.window, tenant))
            for row in self._seconds(name, outcome.window, received[name]):
                self._rows.put(row)
            if tenant.forecast_by not in {None, self._names[1]}:
                words = f"{name} forecast by {tenant.forecast_by}"
                self._rows.put(EventRecord(began_s, "forecast", words))
            self._reconfigurations[name].append(tenant.reconfigurations)
        self._fluid.append(outcome.fluid)
        self.record_end_of_window(began_s + self._clock.window_s)

    def end_run(self) -> RunRecords:
        """Everything that was recorded."""
        scenario = self._scenario
        ended_s = BEGAN_S + len(self._fluid) * scenario.window_s
        self.close_units(ended_s)
        about: dict[str, object] = {
            "window_s": scenario.window_s,
            "slot_s": scenario.slot_s,
            "labels": scenario.labels.value,
            "tenants": [tenant.name for tenant in scenario.tenants],
            "fluid_goodput": self._fluid,
            "reconfigurations": dict(self._reconfigurations),
            **Preferences.of(tenant.service for tenant in scenario.tenants).facts,
        }
        names = (scenario.name, scenario.board.name, SIMULATED, self._names[0])
        return self._rows.records(RunRow(1, BEGAN_S, ended_s, *names, scenario.seed, 0, about))

    def expect(self, seen: Observation) -> None:
        """Use the forecast of a decision whose policy does not make plans."""
        ahead = {view.name: view.ahead for view in seen.tenants if view.ahead is not None}
        if ahead:
            self.forecasts.expect_arrivals(ahead)

    def retrained(self, tenant: str, ended: EndedTraining, accuracy: float | None) -> None:
        """Record a retraining that has ended and its model. `accuracy`: None if it was refused."""
        job = ended.job
        planned_s = job.slower * ended.spent.planned_s + job.fixed_s
        took_s = ended.spent.took_s
        parts_s = {"start_s": ended.start_s, "epochs_s": took_s, "hand_over_s": ended.swap_s}
        rounded = {name: round(seconds, 3) for name, seconds in parts_s.items()}
        self.trained(tenant, job, ended.holding, took_s, planned_s, rounded)
        at_s = self._time_s() + ended.swap_s
        number, words = 0, "the retrained model was refused"
        if accuracy is not None:
            self._versions[tenant] += 1
            number, words = self._versions[tenant], _RETRAINED
            self._rows.put(EventRecord(at_s, "model", f"{tenant}: version {number}, {words}"))
        self.put_version(tenant, number, accuracy, words, adopted=accuracy is not None, at_s=at_s)

    def _tenant_window(self, window: int, tenant: TenantOutcome) -> TenantWindowRecord:
        tally, job = tenant.tally, self._tenants[tenant.tenant].retraining
        return TenantWindowRecord(
            window,
            tenant.tenant,
            received=tally.received,
            in_time=round(tally.in_time),
            late=tally.late,
            dropped=tally.dropped,
            goodput=tally.goodput,
            wrong=tally.wrong,
            while_reconfiguring=tally.while_reconfiguring,
            accuracy_before=tenant.accuracy_before,
            accuracy_after=tenant.accuracy_after,
            accuracy_estimated=job.expected if job is not None else None,
            version=self._versions[tenant.tenant],
            evidence=Evidence.ANSWERS,
        )

    def _seconds(
        self, tenant: str, window: int, received: NDArray[np.float64]
    ) -> Iterator[SecondRecord]:
        """A row per slot, or per second where slots are shorter."""
        slot_s, first = self._clock.slot_s, round(window * self._clock.window_s)
        starts = [math.floor(slot * slot_s + 1e-9) for slot in range(len(received) + 1)]
        bands = self._bands[tenant]
        for start, group in groupby(range(len(received)), key=starts.__getitem__):
            slots = list(group)
            mean, low, high = _joined([bands[slot] for slot in slots])
            yield SecondRecord(
                tenant,
                first + start,
                sum(int(received[slot]) for slot in slots),
                None,
                forecast_mean=mean,
                forecast_low=low,
                forecast_high=high,
                span_s=max(1, starts[slots[-1] + 1] - start),
            )


@dataclass(frozen=True)
class EndedTraining:
    """A retraining that has ended in the simulator."""

    job: TenantRetraining
    holding: Holding
    spent: Spent
    start_s: float
    """Seconds until its last process trained."""
    swap_s: float
    """Seconds from its end until the model serves."""


def _joined(bands: Sequence[_Band]) -> _Band:
    """The mean of each quantity over some slots, in requests per second; None where one is not
    known."""
    columns = zip(*bands, strict=True)
    means = [None if None in column else round(fmean(column), 3) for column in columns]
    mean, low, high = means
    return mean, low, high
