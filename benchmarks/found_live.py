"""What a live run found out, put into its scenario: for benchmarks/simulated_live.py.

The simulator must assume what a model is worth in each window, how long a retraining takes and
what a new instance costs. Here all of that comes from the records of a run and from what its
clients saw; arrivals, policy and forecaster are the scenario's own.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from migrator.core.curve import Curve
from migrator.core.instance import Kind
from migrator.core.profile import Overhead
from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.core.share import Holding
from migrator.live.tenant_run import FEWEST_LABELS
from migrator.policies.equal_shares import equal_allocation
from migrator.policies.policy import Observation, Policy, TenantView
from migrator.records.rows import RunRecords, UnitRecord, VersionRecord, WindowRecord
from migrator.simulate.run import overheads_s
from migrator.workload.live import LiveScenario, LiveTenant

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
            drifts=tuple(_drifts(own, scenario, records, sent)),
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


@dataclass(frozen=True)
class _Window:
    """What a window showed of a tenant's model."""

    seconds: Curve | None
    old: float
    """Of the model that it began with."""
    late: float | None
    """Of one whose retraining had been begun in the window before; None: there was none."""
    own: float
    """Of the one that was retrained in this window; where there was none, of the one before it."""
    estimated: float | None


def _drifts(
    tenant: LiveTenant, scenario: Scenario, records: RunRecords, sent: Sent
) -> Iterator[Drift]:
    """What each window did to a tenant's model, and its retraining about it.

    A retraining that ended in the next window is worth there what its model answered there; what
    it would have been worth in its own is such that the simulator's drift leads from what was
    answered in the one to what was answered in the other.
    """
    counts = sent["seconds"][tenant.name]
    # a window without answers shows nothing: its model was as good as in the next one that does
    silent = _accuracy(counts, 0, len(counts["in_time"]), 1.0)
    shown: list[_Window] = []
    for each_window in reversed(records.windows):
        shown.insert(0, _window(tenant, each_window, scenario, records, sent, silent))
        silent = shown[0].old
    for each, then in zip_longest(shown, shown[1:]):
        before = each.old if each.late is None else each.late
        after = each.own
        if then is not None and then.late is not None:
            after = before * then.late / then.old if then.old else then.late
        yield Drift(before, min(1.0, after), each.seconds, each.estimated)


def _window(
    tenant: LiveTenant,
    window: WindowRecord,
    scenario: Scenario,
    records: RunRecords,
    sent: Sent,
    silent: float,
) -> _Window:
    """`silent`: the accuracy to assume where nothing was answered."""
    seconds = _retraining_s(tenant, window, scenario, records)
    first = round(window.window * scenario.window_s)
    last = first + round(scenario.window_s)
    counts = sent["seconds"][tenant.name]
    begun = _trained(tenant.name, window, records)
    switches_s = [each.at_s for each in _switches(tenant.name, window, records)]
    late = bool(switches_s) and not (begun and begun[0].from_s < switches_s[0])
    edges = [first, *(min(last, first + round(at - window.began_s)) for at in switches_s), last]
    found = _accuracy(counts, first, last, silent)
    parts = []
    for begin, end in pairwise(edges):
        found = _accuracy(counts, begin, end, found)
        parts.append(found)
    told = next(
        each
        for each in records.tenant_windows
        if (each.window, each.tenant) == (window.window, tenant.name)
    )
    own = parts[-1]
    if not switches_s and seconds is not None and not begun:
        own = told.accuracy_estimated or own  # it was never begun: as good as was thought
    estimated = told.accuracy_estimated if seconds else None
    return _Window(seconds, parts[0], parts[1] if late else None, own, estimated)


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
    ends_s = window.ended_s or float("inf")
    for each in _trained(tenant.name, window, records):
        took_s = (each.to_s or ends_s) - each.from_s
        return curve.scaled(took_s / curve.at(scenario.board.sms_of(round(each.gpcs))))
    return curve


def _trained(tenant: str, window: WindowRecord, records: RunRecords) -> list[UnitRecord]:
    """The retrainings that were begun in the window."""
    ends_s = window.ended_s or float("inf")
    found = [
        each
        for each in records.units
        if each.state == "training"
        and each.tenant == tenant
        and window.began_s <= each.from_s < ends_s
    ]
    return sorted(found, key=lambda each: each.from_s)


def _switches(tenant: str, window: WindowRecord, records: RunRecords) -> list[VersionRecord]:
    """The retrained models that took over in the window."""
    ends_s = window.ended_s or float("inf")
    return [
        each
        for each in records.versions
        if each.tenant == tenant and each.adopted and window.began_s <= each.at_s < ends_s
    ]
