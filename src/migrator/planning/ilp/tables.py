"""What the ILP knows of a window before any variable exists: patterns and tables.

A *pattern* is a multiset of instance sizes that a tenant's inference may hold. Patterns take
the paper's division by decision variables out of the model: capability, number of instances
and so the charge of a change are constants of the pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import (
    Multiset,
    Placement,
    find_placement,
    multisets,
    placements,
)
from migrator.core.errors import InputError
from migrator.core.problem import Kind, Problem, RetrainingConfiguration, Tenant

FloatArray = NDArray[np.float64]

PRE, POST = 0, 1
"""The stages of a tenant: before its completed retraining, and after it; after one in
configuration c it is POST + c. A retraining that runs already has one way to end: POST."""


@dataclass(frozen=True)
class RunningPlacement:
    """A retraining that runs already: where, and for how many slots more."""

    placement: int
    slots_left: int


@dataclass(frozen=True)
class TenantTable:
    """One tenant's constants. Placements are numbers into `Tables.placements`."""

    tenant: Tenant
    patterns: tuple[Multiset, ...]
    kept: FloatArray
    """[slot, pattern] expected throughput when the pattern is the same as in the slot before."""
    changed: FloatArray
    """[slot, pattern] expected throughput under charge `paper` when it is not."""
    before: Multiset
    """The inference multiset held before the window; empty where nothing is known."""
    warm: frozenset[int]
    """Placements that count as warm at slot 0 if the tenant holds them then."""
    choices: tuple[RetrainingConfiguration, ...]
    """What its retraining can be: one, if it runs already."""
    penalty: float
    """What a request short of its floor costs, 0 without a floor."""
    durations: dict[tuple[int, int], int]
    """(configuration, placement) -> slots of a retraining there that fits the window; {} if none
    is to start."""
    running: RunningPlacement | None

    @property
    def accuracy(self) -> tuple[float, ...]:
        """Its accuracy by stage, times its weight."""
        weight = self.tenant.weight
        accuracies = (self.tenant.accuracy_pre, *(choice.accuracy for choice in self.choices))
        return tuple(weight * accuracy for accuracy in accuracies)

    def later_goodput(self, choice: RetrainingConfiguration) -> float:
        """What a completed retraining adds to the objective after the window."""
        return self.tenant.weight * self.tenant.later_goodput(choice)

    def enough(self, slot: int) -> float:
        """Expected requests of a slot to answer for its floor."""
        received = [scenario[slot] for scenario in self.tenant.received]
        return self.tenant.floor * sum(received) / len(received)

    @property
    def serving(self) -> frozenset[int]:
        """The sizes its patterns use."""
        return frozenset(size for pattern in self.patterns for size in pattern)

    def stages(self, slot: int) -> tuple[int, ...]:
        """The stages it can be in during `slot`."""
        if self.running is not None:
            return (POST,) if slot >= self.running.slots_left else (PRE,)
        done = {c for (c, _), duration in self.durations.items() if duration <= slot}
        return (PRE, *(POST + c for c in sorted(done)))


@dataclass(frozen=True)
class Tables:
    """A problem with the constants of its ILP."""

    problem: Problem
    placements: tuple[Placement, ...]
    tenants: tuple[TenantTable, ...]

    @property
    def most(self) -> float:
        """An objective no plan exceeds: every tenant alone on the board, at its best accuracy."""
        later = sum(
            max(0.0, *map(table.later_goodput, table.choices))
            for table in self.tenants
            if table.choices
        )
        return later + sum(
            max(table.accuracy[c] for c in table.stages(s)) * float(row.max(initial=0.0))
            for table in self.tenants
            for s, row in enumerate(table.kept)
        )

    def covering(self, slice_: int) -> list[int]:
        """The placements on a memory slice."""
        return [i for i, place in enumerate(self.placements) if place.mask >> slice_ & 1]

    def of_sizes(self, sizes: Iterable[int]) -> list[int]:
        """The placements of the given sizes."""
        wanted = frozenset(sizes)
        return [i for i, place in enumerate(self.placements) if place.gpcs in wanted]


def tables(problem: Problem) -> Tables:
    """The constants of the problem's ILP."""
    return Tables(
        problem,
        placements(problem.board),
        tuple(_tenant_table(problem, tenant) for tenant in problem.tenants),
    )


def expected_throughput(received: FloatArray, capability: FloatArray) -> FloatArray:
    """E[min(received, capability)]: [scenario, slot] and [...] give [slot, ...]."""
    arrivals = received.reshape(*received.shape, *([1] * capability.ndim))
    mean: FloatArray = np.minimum(arrivals, capability).mean(axis=0)
    return mean


def pieces(received: FloatArray, most: float) -> list[tuple[float, float]]:
    """Lines (slope, intercept) whose minimum is c -> E[min(received, c)] for 0 <= c <= most."""
    scenarios = np.sort(received)
    lines = [(1.0, 0.0)]
    for reached in range(1, len(scenarios) + 1):
        value = float(scenarios[reached - 1])
        if value >= most:
            break
        if reached == len(scenarios) or scenarios[reached] > value:
            share = (len(scenarios) - reached) / len(scenarios)
            lines.append((share, float(scenarios[:reached].sum()) / len(scenarios)))
    return lines


def _tenant_table(problem: Problem, tenant: Tenant) -> TenantTable:
    patterns = _patterns(problem, tenant)
    received = np.array(tenant.received, dtype=np.float64)
    full = np.array([sum(tenant.capability[k] for k in pattern) for pattern in patterns])
    number = np.array([len(pattern) for pattern in patterns])
    lost = tenant.overhead_s / problem.slot_s * full / number
    return TenantTable(
        tenant=tenant,
        patterns=patterns,
        kept=expected_throughput(received, full),
        changed=expected_throughput(received, full - lost),
        before=_before(problem, tenant),
        warm=_warm(problem, tenant),
        choices=_choices(problem, tenant),
        penalty=problem.penalty if tenant.floor > 0 else 0.0,
        durations=_durations(problem, tenant),
        running=_running(problem, tenant),
    )


def _patterns(problem: Problem, tenant: Tenant) -> tuple[Multiset, ...]:
    """Its possible multisets that leave room for the minimum of every other tenant."""
    return tuple(
        multiset
        for multiset in multisets(problem.board)
        if all(size in tenant.capability for size in multiset)
        and max(multiset) >= tenant.min_gpcs
        and _leaves_room(problem, tenant, multiset)
    )


def _leaves_room(problem: Problem, tenant: Tenant, pattern: Multiset) -> bool:
    possible = frozenset(multisets(problem.board))
    reached = {pattern}
    for other in problem.tenants:
        if other.name != tenant.name:
            enough = [size for size in other.capability if size >= other.min_gpcs]
            grown = {
                tuple(sorted((*multiset, k), reverse=True)) for multiset in reached for k in enough
            }
            reached = grown & possible
    return bool(reached)


def _before(problem: Problem, tenant: Tenant) -> Multiset:
    held = [
        instance.gpcs
        for instance in (problem.initial.instances if problem.initial else ())
        if instance.task
        and instance.task.tenant == tenant.name
        and instance.task.kind is Kind.INFERENCE
    ]
    return tuple(sorted(held, reverse=True))


def _warm(problem: Problem, tenant: Tenant) -> frozenset[int]:
    everywhere = placements(problem.board)
    if problem.initial is None:
        return frozenset(range(len(everywhere)))
    held = Counter(
        (instance.start, instance.gpcs)
        for instance in problem.initial.instances
        if instance.task and instance.task.tenant == tenant.name
    )
    return frozenset(i for i, place in enumerate(everywhere) if held[place.start, place.gpcs])


def _choices(problem: Problem, tenant: Tenant) -> tuple[RetrainingConfiguration, ...]:
    running = problem.running(tenant)
    if running is not None:
        return (tenant.configuration(running.configuration),)
    return tenant.configurations if problem.may_retrain(tenant) else ()


def _durations(problem: Problem, tenant: Tenant) -> dict[tuple[int, int], int]:
    if not problem.may_retrain(tenant):
        return {}
    return {
        (c, i): choice.slots[place.gpcs]
        for c, choice in enumerate(tenant.configurations)
        for i, place in enumerate(placements(problem.board))
        if choice.slots.get(place.gpcs, problem.slots + 1) <= problem.slots
    }


def _running(problem: Problem, tenant: Tenant) -> RunningPlacement | None:
    slots_left = problem.slots_left(tenant)
    if slots_left is None or problem.initial is None:
        return None
    for instance in problem.initial.instances:
        if (
            instance.task
            and instance.task.tenant == tenant.name
            and instance.task.kind is Kind.RETRAINING
        ):
            where = find_placement(problem.board, instance.start, instance.gpcs)
            if where is not None:
                return RunningPlacement(placements(problem.board).index(where), slots_left)
    raise InputError(
        f"initial.retrainings: {tenant.name} has no instance with task "
        f"{tenant.name}/retraining in initial.instances; add the one it runs on"
    )
