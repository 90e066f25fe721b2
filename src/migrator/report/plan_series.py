"""Each tenant's window slot by slot: arrivals, capability, goodput, computed from the plan alone.

Deliberately its own small arithmetic: a picture that reused the planner's tables would
repeat the planner's mistakes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.instance import Instance, Kind, Task
from migrator.core.plan import Plan
from migrator.core.problem import Charge, Problem, Tenant
from migrator.report.plan_blocks import Block

Series = NDArray[np.float64]
"""One value per slot, in requests."""


@dataclass(frozen=True)
class TenantSeries:
    """What one tenant's panel shows."""

    name: str
    arrivals: Series
    """Mean over the scenarios."""
    band: tuple[Series, Series] | None
    """10% and 90% quantiles where there are several scenarios."""
    capability: Series
    """After the charge for reconfigurations."""
    goodput: Series
    changes: tuple[int, ...]
    """Slots charged because the tenant's multiset of sizes differs from the slot before."""
    completed: int | None
    """The slot from which its retrained accuracy counts."""
    accuracies: tuple[float, float]


def tenant_series(
    problem: Problem, plan: Plan, blocks: Iterable[Block], tenant: Tenant
) -> TenantSeries:
    """The series of one tenant; `blocks` are those of the whole plan."""
    received = np.asarray(tenant.received, dtype=np.float64)
    changes: list[int] = []
    if problem.charge is Charge.SURVIVORS:
        capability = _warm_capability(problem, blocks, tenant)
    else:
        capability, changes = _charged_capability(problem, plan, tenant)
    completed = next((each.end for each in plan.retrainings if each.tenant == tenant.name), None)
    served = np.minimum(received, capability).mean(axis=0)
    return TenantSeries(
        name=tenant.name,
        arrivals=received.mean(axis=0),
        band=_band(received),
        capability=capability,
        goodput=served * _accuracy(problem.slots, tenant, completed),
        changes=tuple(changes),
        completed=completed,
        accuracies=(tenant.accuracy_pre, tenant.accuracy_post),
    )


def _band(received: NDArray[np.float64]) -> tuple[Series, Series] | None:
    if len(received) == 1:
        return None
    low, high = np.quantile(received, (0.1, 0.9), axis=0)
    return low, high


def _accuracy(slots: int, tenant: Tenant, completed: int | None) -> Series:
    accuracy = np.full(slots, tenant.accuracy_pre)
    if completed is not None:
        accuracy[completed:] = tenant.accuracy_post
    return accuracy


def _warm_capability(problem: Problem, blocks: Iterable[Block], tenant: Tenant) -> Series:
    """Charge `survivors`: an instance counts for the part of each slot in which it is warm."""
    capability = np.zeros(problem.slots)
    task = Task(tenant.name, Kind.INFERENCE)
    for block in blocks:
        if block.task == task:
            lived = np.arange(1, block.end - block.first + 1)
            warm = np.clip(lived - block.cold_s / problem.slot_s, 0.0, 1.0)
            capability[block.first : block.end] += warm * tenant.capability[block.gpcs]
    return capability


def _charged_capability(problem: Problem, plan: Plan, tenant: Tenant) -> tuple[Series, list[int]]:
    """Charge `paper`: overhead x the mean instance is lost in a slot whose multiset is new."""
    capability = np.zeros(problem.slots)
    changes: list[int] = []
    before = _sizes(problem.initial.instances, tenant) if problem.initial else None
    for slot, allocation in enumerate(plan.slots):
        sizes = _sizes(allocation.instances, tenant)
        whole = sum(tenant.capability[size] for size in sizes)
        capability[slot] = whole
        if before is not None and sizes != before:
            changes.append(slot)
            # Not clipped at zero: an overhead longer than a slot is charged in full.
            capability[slot] -= tenant.overhead_s / problem.slot_s * whole / max(1, len(sizes))
        before = sizes
    return capability, changes


def _sizes(instances: Sequence[Instance], tenant: Tenant) -> list[int]:
    task = Task(tenant.name, Kind.INFERENCE)
    return sorted(each.gpcs for each in instances if each.task == task)
