"""What live runs measured, for simulations of them: used by benchmarks/simulated_live.py.

From the records of a run and from what its clients saw: how long every step took, how long
retrainings took and were planned to take, how accurate which model was in which window, and by how
much batches took longer than profiled, if they were recorded.
Arrivals, policy and forecaster are the scenario's own. Where a run shows nothing (a retraining
that it never made, say), the other runs of the same scenario are asked, then the profile.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.recorded_batches import measured_slowdown, recorded
from benchmarks.replayed import (
    MeasuredDurations,
    MeasuredModel,
    MeasuredWindow,
    Samples,
    Training,
)
from migrator.control.tenant_state import TrainingSettings
from migrator.core.batch import Batch
from migrator.core.problem import Holding, Instance
from migrator.core.profiles import Curve
from migrator.core.scenario import Scenario
from migrator.policies.policy import Policy, Sharing
from migrator.records.rows import RunRecords, TenantWindowRecord, UnitRecord
from migrator.simulation.durations import ProfileDurations, Removal
from migrator.simulation.interference import BatchSlowdown
from migrator.simulation.run import MeasuredRun
from migrator.workload.live import LiveScenario, LiveTenant

Sent = Mapping[str, Any]
"""What `migrator load --json` says."""
FIRST = -1
"""The model that a run began with."""


@dataclass(frozen=True)
class LiveRun:
    """One live run: its daemon's records and its clients' counts."""

    records: RunRecords
    sent: Sent
    batches: tuple[Batch, ...] = ()
    """Empty if they were not recorded."""

    @property
    def began_s(self) -> float:
        """When the first window began."""
        return self.records.windows[0].began_s

    @property
    def ended_s(self) -> float:
        """When the last window ended."""
        last = self.records.windows[-1]
        return last.ended_s if last.ended_s is not None else last.began_s

    def window_at(self, moment_s: float) -> int:
        """Counted from the run's first one; -1: before it."""
        begun = [window for window in self.records.windows if window.began_s <= moment_s]
        return len(begun) - 1

    def tenant_window(self, tenant: str, window: int) -> TenantWindowRecord | None:
        """What was counted of a tenant in a window of the run."""
        number = self.records.windows[window].window
        for row in self.records.tenant_windows:
            if (row.window, row.tenant) == (number, tenant):
                return row
        return None

    @cached_property
    def histories(self) -> tuple[tuple[UnitRecord, ...], ...]:
        """The states of every instance and share, in order."""
        records_of: dict[str, list[UnitRecord]] = {}
        for unit in sorted(self.records.units, key=lambda unit: unit.from_s):
            records_of.setdefault(unit.unit, []).append(unit)
        return tuple(tuple(units) for units in records_of.values())

    def labelled_before(self, tenant: str) -> int:
        """Samples that were uploaded for the first window, before it began."""
        if self.sent.get("labels_at") != "start" or not self.sent["windows"]:
            return 0
        return int(self.sent["windows"][0]["tenants"][tenant]["labels_stored"])

    def trainings(self, tenant: str) -> list[UnitRecord]:
        """The retrainings of a tenant that ended before the run did."""
        return [unit for unit in self._begun(tenant) if unit.to_s and unit.to_s < self.ended_s]

    def unfinished(self, tenant: str) -> list[UnitRecord]:
        """Those that did not."""
        ended = self.trainings(tenant)
        return [unit for unit in self._begun(tenant) if unit not in ended]

    def _begun(self, tenant: str) -> Iterator[UnitRecord]:
        for unit in chain.from_iterable(self.histories):
            is_training = unit.state == "training" and unit.tenant == tenant
            if is_training and self.began_s <= unit.from_s < self.ended_s:
                yield unit

    def outcomes(self, tenant: str) -> Iterator[tuple[int, UnitRecord, bool, float | None, float]]:
        """Per retraining: its window, its time on the GPU, whether its model was adopted, that
        model's accuracy on held-out labels, and when it served."""
        for training in self.trainings(tenant):
            assert training.to_s is not None
            for version in sorted(self.records.versions, key=lambda version: version.at_s):
                # a refused model is told of just before its instance is free
                if version.tenant == tenant and version.at_s > training.to_s - 1.0:
                    window = self.window_at(training.from_s)
                    yield window, training, version.adopted, version.accuracy, version.at_s
                    break

    def accuracies(self, tenant: str) -> Iterator[tuple[int, int, int, int]]:
        """Window, the window its model was retrained for, answers in time, right ones of them."""
        counts = self.sent["seconds"][tenant]
        switches = [
            (at_s, window) for window, _, adopted, _, at_s in self.outcomes(tenant) if adopted
        ]
        edges = [window.began_s for window in self.records.windows] + [self.ended_s]
        cuts = sorted({*edges, *(at for at, _ in switches if at < self.ended_s)})
        for begin_s, end_s in pairwise(cuts):
            model = max([w for at, w in switches if at <= begin_s], default=FIRST)
            first, last = round(begin_s - self.began_s), round(end_s - self.began_s)
            in_time = sum(counts["in_time"][first:last])
            yield self.window_at(begin_s), model, in_time, sum(counts["goodput"][first:last])


def measured_run(
    live: LiveScenario,
    policy: Policy,
    own: LiveRun,
    others: Sequence[LiveRun] = (),
    *,
    arrivals: LiveRun | None = None,
) -> MeasuredRun:
    """What a run measured, completed by other runs of the same scenario.

    `arrivals`: another run is simulated, of which nothing but the requests is known.
    """
    scenario = live.scenario
    profile = ProfileDurations(
        {tenant.name: tenant.service.profile.overhead for tenant in live.tenants}, True, True
    )
    runs = (own, *others)
    durations = MeasuredDurations(
        profile,
        _steps(own, others, scenario.seed),
        # which instances were destroyed when depends on the policy
        _removals(own) if arrivals is None else {},
        {
            (tenant.name, window): _trainings(scenario, tenant, window, runs, arrivals is None)
            for tenant in live.tenants
            for window in range(scenario.windows)
        },
        {
            (tenant.name, window): max(0.0, at_s - (outcome.to_s or at_s))
            for run in reversed(runs)
            for tenant in live.tenants
            for window, outcome, adopted, _, at_s in run.outcomes(tenant.name)
            if adopted
        },
    )
    return MeasuredRun(
        durations,
        {
            tenant.name: MeasuredModel(
                tuple(_windows(scenario, tenant, runs)), own.labelled_before(tenant.name)
            )
            for tenant in live.tenants
        },
        {tenant.name: TrainingSettings.of(tenant) for tenant in live.tenants},
        {tenant.name: _overhead_s(tenant, own) for tenant in live.tenants},
        {tenant.name: _seen(scenario, tenant.name, arrivals or own) for tenant in live.tenants},
        own.records.run.driver != "emulated",
        # where processes only have shares of the SMs, instances do not keep them apart
        Sharing.MPS if own.records.run.driver == "mps" and policy.sharing is Sharing.MIG else None,
        bool((arrivals or own).records.run.about.get("lends")),
        _slowdown(scenario, runs),
    )


def _slowdown(scenario: Scenario, runs: Iterable[LiveRun]) -> BatchSlowdown | None:
    """Of the first run that recorded enough batches."""
    for run in runs:
        ran = recorded("live", run.batches, run.records, scenario, run.began_s, run.began_s)
        if (measured := measured_slowdown(ran)) is not None:
            return measured
    return None


def _seen(scenario: Scenario, tenant: str, run: LiveRun) -> NDArray[np.float64]:
    """Requests per slot as the daemon counted them."""
    per_second = np.zeros(round(scenario.windows * scenario.window_s))
    for second in run.records.seconds:
        if second.tenant == tenant and second.second < len(per_second):
            per_second[second.second : second.second + second.span_s] = (
                second.received / second.span_s
            )
    slots = np.arange(scenario.windows * scenario.slots + 1) * scenario.slot_s
    total = np.interp(slots, np.arange(len(per_second) + 1), [0, *np.cumsum(per_second)])
    counted: NDArray[np.float64] = np.diff(total)
    return counted


def _place(record: UnitRecord) -> Holding | None:
    """The instance; None: a share, which only its task tells from others."""
    return None if record.start is None else Instance(record.start, round(record.gpcs))


def _sms(scenario: Scenario, record: UnitRecord) -> float:
    if record.start is None:
        return scenario.board.sms * record.gpcs / scenario.board.compute_slices
    return scenario.board.sms_of(round(record.gpcs))


def _steps(own: LiveRun, others: Iterable[LiveRun], seed: int) -> Samples:
    """Creating, warming, stopping, destroying and planning."""
    samples = Samples(seed)
    for plan in own.records.plans:
        window = own.window_at(plan.at_s)
        if plan.plan_s is not None and window >= 0:
            samples.add(plan.plan_s, ("plan", window), ("plan",))
    for window, step, tenant, place, seconds in _measured_steps(own):
        samples.add(seconds, (step, window, place), (step, window, tenant), (step, tenant), (step,))
    measured = set(samples.values)
    for other in others:
        for _, step, tenant, _, seconds in _measured_steps(other):
            for key in ((step, tenant), (step,)):
                if key not in measured:
                    samples.add(seconds, key)
    return samples


def _measured_steps(
    run: LiveRun,
) -> Iterator[tuple[int, str, str | None, Holding | None, float]]:
    """Window, step, tenant, instance and seconds of every step that was made to its end."""
    steps = {"creating": "create", "stopping": "stop", "destroying": "destroy"}
    started: set[float] = set()  # a standby may be used again and again
    for history in run.histories:
        tenants = [unit.tenant for unit in history if unit.tenant]
        for unit in history:
            if unit.to_s is None or not run.began_s <= unit.from_s < run.ended_s:
                continue
            window, place = run.window_at(unit.from_s), _place(unit)
            if unit.state == "warming" and unit.parts_s:
                standby_s = unit.parts_s.get("standby_s")
                if standby_s is None:
                    yield window, "warm", unit.tenant, place, unit.parts_s["warm_s"]
                else:
                    yield window, "take_over", unit.tenant, place, unit.parts_s["warm_s"]
                    if standby_s not in started:
                        started.add(standby_s)
                        yield window, "warm", unit.tenant, place, standby_s
                if unit is history[0] and unit.parts_s.get("create_s"):
                    yield window, "create", unit.tenant, place, unit.parts_s["create_s"]
            elif unit.state in steps:
                tenant = unit.tenant or (tenants[0] if tenants else None)
                yield window, steps[unit.state], tenant, place, unit.to_s - unit.from_s


def _removals(own: LiveRun) -> dict[tuple[int, Holding], list[Removal]]:
    """Every attempt to destroy an instance; after one that was refused it is idle."""
    removals: dict[tuple[int, Holding], list[Removal]] = {}
    for history in own.histories:
        for unit, then in zip(history, (*history[1:], None), strict=True):
            place = _place(unit)
            if unit.state != "destroying" or unit.to_s is None or place is None:
                continue
            refused = then is not None and then.state == "idle"
            removal = Removal(unit.to_s - unit.from_s, "in use" if refused else "")
            removals.setdefault((own.window_at(unit.from_s), place), []).append(removal)
    return removals


def _trainings(
    scenario: Scenario, tenant: LiveTenant, window: int, runs: Sequence[LiveRun], is_own: bool
) -> list[Training]:
    """How long the window's retraining took: in this run, in others, or in another window.

    One that continued on other shares counts with the time of all of them, on the SMs of the last.
    One of this run that did not end with it takes longer than it ran. `is_own`: the first run is
    this one.
    """
    candidates = []
    for number, run in enumerate(runs):
        parts: dict[int, list[UnitRecord]] = {}
        for training in run.trainings(tenant.name):
            parts.setdefault(run.window_at(training.from_s), []).append(training)
        candidates += [(abs(at - window), number, units) for at, units in parts.items()]
    candidates.sort(key=lambda row: row[:2])
    nearest = [units for distance, _, units in candidates if distance == candidates[0][0]]
    own = runs[0]
    began = [unit for unit in own.unfinished(tenant.name) if own.window_at(unit.from_s) == window]
    if is_own and began:
        sms = _sms(scenario, (nearest[0] if nearest else began)[-1])
        ended = [_training(scenario, tenant, units, sms) for units in nearest[:1]]
        parts_of_it = [
            training
            for training in own.trainings(tenant.name)
            if own.window_at(training.from_s) == window
        ]
        ran = [(part, part.to_s or part.from_s) for part in parts_of_it]
        ran += [(unit, own.ended_s + scenario.slot_s) for unit in began]
        least = Training(_on(scenario, tenant, sms, ran), sms)
        return [max((*ended, least), key=lambda removal: removal.seconds)]
    return [
        _training(scenario, tenant, units, _sms(scenario, units[-1]))
        for units in (nearest[:1] if is_own else nearest)
    ]


def _training(
    scenario: Scenario, tenant: LiveTenant, parts: Sequence[UnitRecord], sms: float
) -> Training:
    ran = [(part, part.to_s or part.from_s) for part in parts]
    return Training(_on(scenario, tenant, sms, ran), sms)


def _on(
    scenario: Scenario, tenant: LiveTenant, sms: float, ran: Iterable[tuple[UnitRecord, float]]
) -> float:
    """Seconds on `sms` SMs of what ran on others until the given times."""
    curve = tenant.training_s(1)
    return sum(
        (until_s - unit.from_s) * curve.at(sms) / curve.at(_sms(scenario, unit))
        for unit, until_s in ran
    )


def _windows(
    scenario: Scenario, tenant: LiveTenant, runs: Sequence[LiveRun]
) -> Iterator[MeasuredWindow]:
    own = runs[0]
    bias = _bias(tenant.name, runs)
    for window in range(scenario.windows):
        row = own.tenant_window(tenant.name, window)
        estimate = _first(_estimate(run, tenant.name, window) for run in runs)
        believed = row.accuracy_before if row else None
        outcome = _first(_outcome(run, tenant.name, window) for run in runs)
        if outcome is None:  # no run made it: as good as estimated, as estimates turned out
            judged = None if estimate is None else min(1.0, bias * estimate)
            outcome = (judged is not None and judged >= (believed or 0.0), judged)
        adopted, judged = outcome
        yield MeasuredWindow(
            _accuracies(tenant.name, window, runs),
            believed,
            estimate,
            row.labelled if row else 0,
            adopted,
            judged,
            _slower(scenario, tenant, window, runs),
        )


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _estimate(run: LiveRun, tenant: str, window: int) -> float | None:
    row = run.tenant_window(tenant, window) if window < len(run.records.windows) else None
    return row.accuracy_estimated if row else None


def _outcome(run: LiveRun, tenant: str, window: int) -> tuple[bool, float | None] | None:
    for made_in, _, adopted, judged, _ in run.outcomes(tenant):
        if made_in == window:
            return adopted, judged
    return None


def _bias(tenant: str, runs: Iterable[LiveRun]) -> float:
    """What retrainings brought over what had been estimated, in the middle."""
    factors = [
        judged / estimate
        for run in runs
        for window, _, _, judged, _ in run.outcomes(tenant)
        if judged is not None and (estimate := _estimate(run, tenant, window))
    ]
    return statistics.median(factors) if factors else 1.0


def _accuracies(tenant: str, window: int, runs: Sequence[LiveRun]) -> dict[int, float]:
    """Of every model that served in the window; other runs' where this one's had no such model."""
    accuracies: dict[int, float] = {}
    for some in (runs[:1], runs[1:]):
        counts: dict[int, tuple[int, int]] = {}
        for run in some:
            for at, model, in_time, right in run.accuracies(tenant):
                if at == window and in_time:
                    before = counts.get(model, (0, 0))
                    counts[model] = (before[0] + in_time, before[1] + right)
        for model, (in_time, right) in counts.items():
            accuracies.setdefault(model, right / in_time)
    return accuracies


def _slower(
    scenario: Scenario, tenant: LiveTenant, window: int, runs: Sequence[LiveRun]
) -> float | None:
    """How many times as long as its profile says a retraining was expected to take.

    As this run expected it in that window; else by the plan of this run whose window is nearest, by
    other runs' plans, and where no plan says it, by how long retrainings took.
    """
    for at, factor in _expected(runs[0], scenario, tenant):
        if at == window:
            return factor
    for source in (_planned, _took):
        for some in (runs[:1], runs[1:]):
            factors = [
                (abs(at - window), factor)
                for run in some
                for at, factor in source(run, scenario, tenant)
            ]
            if factors:
                return min(factors)[1]
    return None


def _expected(run: LiveRun, scenario: Scenario, tenant: LiveTenant) -> Iterator[tuple[int, float]]:
    """Per retraining that ended: its window, and its expected duration over the profile's."""
    for training in run.trainings(tenant.name):
        window = run.window_at(training.from_s)
        profile = _profile_s(run, tenant, window)
        number = run.records.windows[window].window
        for record in run.records.retrainings:
            same = (record.tenant, record.window) == (tenant.name, number)
            if same and record.planned_s is not None and profile is not None:
                yield window, max(1.0, record.planned_s / profile.at(_sms(scenario, training)))


def _planned(run: LiveRun, scenario: Scenario, tenant: LiveTenant) -> Iterator[tuple[int, float]]:
    """Per window whose plan has a retraining of the tenant: its duration over the profile's."""
    for window, record in enumerate(run.records.windows):
        for retraining in (record.plan or {}).get("retrainings", ()):
            profile = _profile_s(run, tenant, window)
            if retraining["tenant"] == tenant.name and profile is not None:
                seconds = (retraining["end"] - retraining["start"]) * scenario.slot_s
                # its start was part of the plan, and half a slot is lost to rounding up
                seconds -= _overhead_s(tenant, run, window) + 0.5 * scenario.slot_s
                sms = scenario.board.sms_of(retraining["gpcs"])
                yield window, max(1.0, seconds / profile.at(sms))


def _took(run: LiveRun, scenario: Scenario, tenant: LiveTenant) -> Iterator[tuple[int, float]]:
    """Per retraining: its window, and how long it took over the profile's."""
    for training in run.trainings(tenant.name):
        window = run.window_at(training.from_s)
        profile = _profile_s(run, tenant, window)
        if profile is not None and training.to_s is not None:
            seconds = training.to_s - training.from_s
            yield window, max(1.0, seconds / profile.at(_sms(scenario, training)))


def _profile_s(run: LiveRun, tenant: LiveTenant, window: int) -> Curve | None:
    """How long a retraining takes by its profile, on all labels that were not learned before."""
    trained = [at for at, *_ in run.outcomes(tenant.name) if at < window]
    labelled = sum(
        row.labelled
        for number in range(max(trained, default=0), window)
        if (row := run.tenant_window(tenant.name, number)) is not None
    )
    if not trained:
        labelled += run.labelled_before(tenant.name)
    return tenant.training_s(max(1, round(labelled * (1 - tenant.held_out)))) if labelled else None


def _overhead_s(tenant: LiveTenant, run: LiveRun, window: int = 0) -> float:
    """What the daemon took for the overhead of a new instance when a window began."""
    known_s = tenant.service.profile.overhead.total_s(mig=True, prepared=True)
    until_s = run.records.windows[window].began_s
    for unit in sorted(run.records.units, key=lambda unit: unit.to_s or unit.from_s):
        if unit.tenant == tenant.name and unit.parts_s and (unit.to_s or until_s) < until_s:
            took_s = unit.parts_s["create_s"] + unit.parts_s["warm_s"]
            known_s += 0.5 * (took_s - known_s)
    return known_s
