"""What a live run found out, put into its scenario: for benchmarks/simulated_live.py.

The simulator must assume what a model is worth in each window, how long a retraining takes and
what a new instance costs. Here all of that comes from the records of a run and from what its
clients saw; arrivals, policy and forecaster are the scenario's own.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from migrator.core.curve import Curve
from migrator.core.instance import Kind
from migrator.core.profile import Overhead
from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.core.share import Holding
from migrator.observe.record_rows import RunRecords, WindowRecord
from migrator.policies.equal_mig import equal_allocation
from migrator.policies.policy import Observation, Policy, TenantView
from migrator.runtime.tenant_run import FEWEST_LABELS
from migrator.scenario.live import LiveScenario, LiveTenant
from migrator.simulate.run import overheads_s

Sent = Mapping[str, Any]
"""What `migrator load --json` says."""
_NOTHING = np.empty(0)


def as_found(live: LiveScenario, records: RunRecords, sent: Sent) -> Scenario:
    """The scenario as it turned out."""
    scenario = live.scenario
    tenants = tuple(
        replace(
            served,
            service=replace(
                served.service,
                profile=replace(served.service.profile, overhead=_overhead(served, records)),
            ),
            drifts=tuple(_drift(own, each, scenario, records, sent) for each in records.windows),
        )
        for served, own in zip(scenario.tenants, live.tenants, strict=True)
    )
    return replace(scenario, tenants=tenants)


def even_split(scenario: Scenario, policy: Policy) -> tuple[Holding, ...]:
    """What serves before the first plan, as the daemon splits the board."""
    overhead_s = overheads_s(scenario, policy)
    views = tuple(
        TenantView(each.service, _NOTHING, None, None, overhead_s[each.name], 1.0)
        for each in scenario.tenants
    )
    seen = Observation(scenario.board, scenario.slot_s, scenario.slots, 0, views, ())
    return tuple(
        each for each in equal_allocation(seen) if each.task and each.task.kind is Kind.INFERENCE
    )


def _overhead(tenant: ServedTenant, records: RunRecords) -> Overhead:
    """What new instances took in this run on average; the profile's where there were none.

    Where a worker only took over an instance that was there, nothing had to be made.
    """
    known, begin_s = tenant.service.profile.overhead, records.windows[0].began_s
    parts = [
        each.parts_s
        for each in records.units
        if each.parts_s and each.tenant == tenant.name and each.from_s > begin_s
    ]
    if not parts:
        return known
    removed = [
        each.to_s - each.from_s
        for each in records.units
        if each.state == "destroying" and each.to_s is not None
    ]
    remove_s = statistics.median(removed) if removed else 0.0
    made = [each["create_s"] + remove_s if each["create_s"] > 0 else 0.0 for each in parts]
    loaded = [each["warm_s"] for each in parts]
    return Overhead(statistics.mean(made), known.start_s, statistics.mean(loaded))


def _drift(
    tenant: LiveTenant, window: WindowRecord, scenario: Scenario, records: RunRecords, sent: Sent
) -> Drift:
    """What one window did to a tenant's model, and its retraining about it."""
    seconds = _retraining_s(tenant, window, scenario, records)
    switch_s = _switched_s(tenant.name, window, records)
    first = round(window.window * scenario.window_s)
    last = first + round(scenario.window_s)
    middle = last if switch_s is None else min(last, first + round(switch_s))
    counts = sent["seconds"][tenant.name]
    whole = _accuracy(counts, first, last, 0.0)
    before = _accuracy(counts, first, middle, whole)
    after = _accuracy(counts, middle, last, before) if switch_s is not None else before
    told = next(
        each
        for each in records.tenant_windows
        if (each.window, each.tenant) == (window.window, tenant.name)
    )
    if switch_s is None and seconds is not None and not _trained(tenant.name, window, records):
        after = told.accuracy_estimated or before  # it was never begun: as good as was thought
    return Drift(before, after, seconds, told.accuracy_estimated if seconds else None)


def _accuracy(counts: Mapping[str, Sequence[int]], first: int, last: int, without: float) -> float:
    """Right among what was answered in time in those seconds."""
    in_time = sum(counts["in_time"][first:last])
    return sum(counts["goodput"][first:last]) / in_time if in_time else without


def _retraining_s(
    tenant: LiveTenant, window: WindowRecord, scenario: Scenario, records: RunRecords
) -> Curve | None:
    """How long its retraining takes over SMs, as long as it took; None: nothing to learn from."""
    labelled = sum(
        each.labelled
        for each in records.tenant_windows
        if each.tenant == tenant.name and each.window == window.window - 1
    )
    if labelled < FEWEST_LABELS:
        return None
    curve = tenant.training_s(labelled)
    for each in _trained(tenant.name, window, records):
        sms = scenario.board.sms_of(round(each[1]))
        return curve.scaled(each[0] / curve.at(sms))
    return curve


def _trained(tenant: str, window: WindowRecord, records: RunRecords) -> list[tuple[float, float]]:
    """Seconds and GPCs of the retrainings that were begun in the window."""
    ends_s = window.ended_s or float("inf")
    return [
        ((each.to_s or ends_s) - each.from_s, each.gpcs)
        for each in records.units
        if each.state == "training"
        and each.tenant == tenant
        and window.began_s <= each.from_s < ends_s
    ]


def _switched_s(tenant: str, window: WindowRecord, records: RunRecords) -> float | None:
    """Seconds into the window at which a retrained model took over."""
    ends_s = window.ended_s or float("inf")
    for each in records.versions:
        if each.tenant == tenant and each.adopted and window.began_s <= each.at_s < ends_s:
            return each.at_s - window.began_s
    return None
