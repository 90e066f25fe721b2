"""Scenarios of the experiments: the paper's workloads, and the two models of its motivation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from migrator.core.scenario import DEFAULT_LIMITS, PeerLimits, Scenario, ServedTenant
from migrator.reproduce.map_cells import Gain, with_gain
from migrator.reproduce.traces import arrivals, at_rate, offset
from migrator.workload.capacity import highest_rps
from migrator.workload.workloads import LOAD, TRACES, all_workloads, workload, workloads

INCEPTION, RESNET = "inception-v3", "resnet-50"
ALIBABA, AZURE = TRACES
_BOTH = "W7"
"""The workload that has both models of the motivation."""
_PLACES = len(workloads())
_STRIDE = 7
"""Places from one workload to the next: W1 to W8 alone are spread over the traces as well."""


@dataclass(frozen=True)
class WorkloadSource:
    """One of the packaged workloads with the given parameters.

    On real traces every workload begins at another place of them and, where there is room, at
    another window of its data set, so that an average covers all of both. The load is that of the
    run. Generated traces have no places.
    """

    name: str
    data: Path | None = None
    batch: int = 1
    slot_s: float = 1.0
    prepared: bool = True
    load: float = LOAD
    gain: Gain | None = None
    """What retrainings gain; None: what was measured of these models."""
    peers: PeerLimits = DEFAULT_LIMITS
    spread_s: int | None = None
    """Real traces: how late the copies are that are added up for the load; None: multiplied."""

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """Build the scenario."""
        scenario = workload(
            self.name, batch=self.batch, data=self.data, load=self.load, seed=seed or 0
        )
        scenario = replace(
            scenario,
            slot_s=self.slot_s,
            prepared=self.prepared,
            windows=windows or scenario.windows,
            peers=self.peers,
        )
        if self.gain is not None:
            scenario = _with_gains(scenario, self.gain)
        if self.data is None:
            return scenario
        place = _place(self.name, seed or 0)
        tenants = (
            _moved(
                # multiplied rates are not to be added up
                tenant
                if self.spread_s is None
                else replace(tenant, trace=arrivals(kind, self.data, 0)),
                self.load / 2 * highest_rps(tenant.service, scenario.board),
                place,
                scenario.windows,
                self.spread_s,
                seed or 0,
            )
            for tenant, kind in zip(scenario.tenants, TRACES, strict=True)
        )
        return replace(scenario, tenants=tuple(tenants))


def _place(name: str, seed: int) -> int:
    """The place of a workload; with another seed all workloads move on by one."""
    return (list(all_workloads()).index(name) * _STRIDE + seed) % _PLACES


def _moved(
    tenant: ServedTenant,
    mean_rps: float,
    number: int,
    windows: int,
    spread_s: int | None,
    seed: int,
) -> ServedTenant:
    """The tenant at a place of its trace, with this mean rate in the windows of the run."""
    begin = offset(tenant.trace, number, _PLACES, windows)
    first = number % max(1, len(tenant.drifts) - windows + 1)
    trace = at_rate(tenant.trace, mean_rps, begin, windows, spread_s, seed)
    return replace(tenant, trace=trace, offset_s=begin, drifts=tenant.drifts[first:])


@dataclass(frozen=True)
class TracedModel:
    """A model of the motivation with its trace and load."""

    model: str
    trace: str
    load: float
    """Mean rate as a share of what the whole board can answer for the model, or for `load_of`."""
    load_of: str | None = None


@dataclass(frozen=True)
class MotivationSource:
    """Inception-v3, ResNet-50 or both, each on a trace and at a load of its own."""

    name: str
    tenants: tuple[TracedModel, ...]
    data: Path | None = None

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """Build the scenario."""
        workload_of_both = workload(_BOTH, data=self.data, seed=seed or 0)
        tenants = tuple(_recut(workload_of_both, tenant) for tenant in self.tenants)
        return replace(
            workload_of_both,
            name=self.name,
            tenants=tenants,
            windows=windows or workload_of_both.windows,
        )


def _recut(both: Scenario, arriving: TracedModel) -> ServedTenant:
    """The model's tenant of W7 with the given arrivals."""
    tenants = {tenant.name: tenant for tenant in both.tenants}
    measure = tenants[arriving.load_of or arriving.model]
    asked = both.tenants[TRACES.index(arriving.trace)]
    rate_rps = arriving.load * highest_rps(measure.service, both.board)
    was_rps = LOAD / 2 * highest_rps(asked.service, both.board)
    trace = asked.trace.scaled(rate_rps / was_rps)
    return replace(tenants[arriving.model], trace=trace, offset_s=asked.offset_s)


def _with_gains(scenario: Scenario, gain: Gain) -> Scenario:
    """The scenario whose retrainings gain as much as `gain` says."""
    tenants = (
        replace(tenant, drifts=tuple(with_gain(tenant.drifts, gain, place)))
        for place, tenant in enumerate(scenario.tenants)
    )
    return replace(scenario, tenants=tuple(tenants))
