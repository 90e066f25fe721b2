"""Pre-initialization (the paper's section 4.2): prepare an instance where nothing runs yet.

A plan made under the `paper` charge pays the whole overhead at every change. But an instance that
a task will get in slot s can be created and warmed before s if its slices are unused until then.
`preinitialize` walks a finished plan and finds, for every change, how much of the overhead
disappears that way. It touches only unused slices, so no running task notices. Under `survivors`
there is no such pass: holding an instance early is a choice of the planner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.core.catalogue import find_placement
from migrator.core.problem import Instance, Kind, Plan, Problem, Task, Tenant


@dataclass(frozen=True)
class Preparation:
    """A new instance of a tenant: needed in `slot`, preparable from `from_slot` on."""

    tenant: str
    start: int
    gpcs: int
    from_slot: int
    slot: int
    overhead_s: float
    hidden_s: float


@dataclass(frozen=True)
class Preinitialization:
    """What the pass found for a whole plan."""

    preparations: tuple[Preparation, ...]
    """every new instance, also those for which nothing could be hidden"""
    releases: int
    """charged changes that only give instances up: nothing has to be prepared for them"""
    goodput_regained: float
    """what the plan gains when each change pays only the overhead that is not hidden"""

    @property
    def overhead_s(self) -> float:
        """Overhead of all new instances."""
        return sum(preparation.overhead_s for preparation in self.preparations)

    @property
    def hidden_s(self) -> float:
        """The part of it that falls before the instance is needed."""
        return sum(preparation.hidden_s for preparation in self.preparations)

    @property
    def hidden_share(self) -> float:
        """Hidden over all, 0 where nothing is paid."""
        return self.hidden_s / self.overhead_s if self.overhead_s else 0.0


def preinitialize(problem: Problem, plan: Plan) -> Preinitialization:
    """Find what can be prepared ahead in a plan made under the `paper` charge."""
    busy = [_busy_mask(problem, slot.instances) for slot in plan.slots]
    preparations: list[Preparation] = []
    releases, regained = 0, 0.0
    for tenant in problem.tenants:
        end, after = _completion(plan, tenant)
        for slot, before, now in _changes(problem, plan, tenant):
            new = [
                _prepared(problem, tenant, instance, slot, busy)
                for instance in _new_ones(before, now)
            ]
            preparations += new
            releases += not new
            hidden_s = sum(preparation.hidden_s for preparation in new) / len(new) if new else 0.0
            accuracy = after if slot >= end else tenant.accuracy_pre
            regained += accuracy * _regained(problem, tenant, slot, now, hidden_s)
    return Preinitialization(
        tuple(sorted(preparations, key=lambda preparation: (preparation.slot, preparation.start))),
        releases,
        regained,
    )


def _completion(plan: Plan, tenant: Tenant) -> tuple[int, float]:
    """The slot from which it serves with the accuracy after its retraining, and that accuracy."""
    for retraining in plan.retrainings:
        if retraining.tenant == tenant.name:
            return retraining.end, tenant.configuration(retraining.configuration).accuracy
    return len(plan.slots), tenant.accuracy_pre


def _busy_mask(problem: Problem, instances: tuple[Instance, ...]) -> int:
    mask = 0
    for instance in instances:
        placement = find_placement(problem.board, instance.start, instance.gpcs)
        if instance.task is not None and placement is not None:
            mask |= placement.mask
    return mask


def _changes(
    problem: Problem, plan: Plan, tenant: Tenant
) -> Iterator[tuple[int, list[Instance], list[Instance]]]:
    """The slots in which the tenant's multiset changes, with what it held before and then."""
    task = Task(tenant.name, Kind.INFERENCE)
    before = None
    if problem.initial is not None:
        before = [instance for instance in problem.initial.instances if instance.task == task]
    for slot, allocation in enumerate(plan.slots):
        now = [instance for instance in allocation.instances if instance.task == task]
        if before is not None and sorted(i.gpcs for i in before) != sorted(i.gpcs for i in now):
            yield slot, before, now
        before = now


def _new_ones(before: list[Instance], now: list[Instance]) -> list[Instance]:
    """Which instances a change adds: by size, and of one size those that sit elsewhere."""
    missing = Counter(instance.gpcs for instance in now) - Counter(
        instance.gpcs for instance in before
    )
    new = []
    for instance in sorted(now, key=lambda other: other in before):
        if missing[instance.gpcs] > 0:
            missing[instance.gpcs] -= 1
            new.append(instance)
    return new


def _prepared(
    problem: Problem, tenant: Tenant, instance: Instance, slot: int, busy: list[int]
) -> Preparation:
    placement = find_placement(problem.board, instance.start, instance.gpcs)
    assert placement is not None, "plans are checked before they come here"
    from_slot = slot
    while (
        from_slot > 0
        and not busy[from_slot - 1] & placement.mask
        and (slot - from_slot) * problem.slot_s < tenant.overhead_s
    ):
        from_slot -= 1
    hidden_s = min(tenant.overhead_s, (slot - from_slot) * problem.slot_s)
    return Preparation(
        tenant.name, instance.start, instance.gpcs, from_slot, slot, tenant.overhead_s, hidden_s
    )


def _regained(
    problem: Problem, tenant: Tenant, slot: int, now: list[Instance], hidden_s: float
) -> float:
    total = sum(tenant.capability[instance.gpcs] for instance in now)
    per_second = total / len(now) / problem.slot_s
    charged_s, unhidden_s = tenant.overhead_s, tenant.overhead_s - hidden_s
    gained = 0.0
    for scenario in tenant.received:
        gained += min(scenario[slot], total - unhidden_s * per_second)
        gained -= min(scenario[slot], total - charged_s * per_second)
    return gained / len(tenant.received)
