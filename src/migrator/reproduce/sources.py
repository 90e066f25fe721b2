"""Scenarios of the experiments: the paper's workloads, and the two models of its motivation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from migrator.core.errors import InputError
from migrator.core.scenario import Drift, Scenario, ServedTenant, Trace
from migrator.workload.arrivals import HISTORY_S
from migrator.workload.capacity import highest_rps
from migrator.workload.datasets import datasets
from migrator.workload.workloads import (
    LOAD,
    TRACES,
    WINDOW_S,
    all_workloads,
    workload,
    workloads,
)

INCEPTION, RESNET = "inception-v3", "resnet-50"
ALIBABA, AZURE = TRACES
_PUBLISHED_MODELS = ("efficientnet-lite0", "efficientnet-lite2")
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
    published: bool = False
    """Retrainings gain what was measured of published weights instead of random ones."""

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
        )
        if self.published:
            scenario = _with_published_weights(scenario)
        if self.data is None:
            return scenario
        place = _place(self.name, seed or 0)
        tenants = (
            _moved(
                tenant,
                self.load / 2 * highest_rps(tenant.service, scenario.board),
                place,
                scenario.windows,
            )
            for tenant in scenario.tenants
        )
        return replace(scenario, tenants=tuple(tenants))


def offset(trace: Trace, number: int, of: int, windows: int = 1) -> int:
    """Start of window `number`: the first after some history, the last at the trace's end."""
    last = trace.seconds - windows * WINDOW_S
    if last < HISTORY_S:
        raise InputError(
            f"{trace.name}: its {trace.seconds} s have no room for {windows} windows of "
            f"{WINDOW_S} s after {HISTORY_S} s of history; give a longer trace"
        )
    return HISTORY_S + number * (last - HISTORY_S) // max(1, of - 1)


def _place(name: str, seed: int) -> int:
    """The place of a workload; with another seed all workloads move on by one."""
    return (list(all_workloads()).index(name) * _STRIDE + seed) % _PLACES


def _moved(tenant: ServedTenant, mean_rps: float, number: int, windows: int) -> ServedTenant:
    """The tenant at a place of its trace, with this mean rate in the windows of the run."""
    begin = offset(tenant.trace, number, _PLACES, windows)
    arriving_rps = float(tenant.trace.counts[begin : begin + windows * WINDOW_S].mean())
    if arriving_rps == 0:
        raise InputError(
            f"{tenant.trace.name}: nothing comes in {windows} windows from second {begin}; give "
            "the whole trace"
        )
    first = number % max(1, len(tenant.drifts) - windows + 1)
    trace = tenant.trace.scaled(mean_rps / arriving_rps)
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


def _with_published_weights(scenario: Scenario) -> Scenario:
    """The scenario with the accuracies of EfficientNet-Lite0 and Lite2 from ImageNet's weights."""
    measured = datasets()["nc-cifar-10"].measured
    tenants = []
    for tenant, model in zip(scenario.tenants, _PUBLISHED_MODELS, strict=True):
        accuracies = measured[model]
        windows = zip(
            tenant.drifts, accuracies.pre, accuracies.post, accuracies.estimated, strict=False
        )
        drifts = tuple(
            Drift(pre, post, drift.seconds, estimated) for drift, pre, post, estimated in windows
        )
        tenants.append(replace(tenant, drifts=drifts))
    return replace(scenario, tenants=tuple(tenants))
