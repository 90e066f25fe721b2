"""The layouts that never change and are worth simulating.

Every layout in which each tenant has instances to serve and at most one to retrain is valued in a
fluid model with the requests that came. The best ones are simulated, and the paper's splits beside
them; the best of all is chosen in hindsight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board, Multiset, multiset_of, multisets, placement_sets
from migrator.core.errors import InputError
from migrator.core.problem import Instance, Kind, Task
from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.policies.fixed_shares import GPCS
from migrator.policies.layouts import least_gpcs
from migrator.policies.policy import Decision, Observation, Policy
from migrator.policies.registry import policy as policy_named
from migrator.workload.tenant_arrivals import TenantArrivals

SIMULATED = 3
"""Layouts of the fluid model's order that are simulated."""


@dataclass(unsafe_hash=True)
class FixedLayout(Policy):
    """The same instances in every window."""

    name: str
    sizes: tuple[tuple[Task, int], ...]
    """Task and GPCs of each instance."""
    summary = "the same instances through every window"
    on_completion = False

    def decide(self, observation: Observation) -> Decision:
        """Return the fixed instances."""
        return Decision((place_instances(observation.board, self.sizes),))


def place_instances(board: Board, sizes: tuple[tuple[Task, int], ...]) -> tuple[Instance, ...]:
    """Place instances of these sizes at the first legal positions; InputError if there are none."""
    wanted: Multiset = tuple(sorted((gpcs for _, gpcs in sizes), reverse=True))
    for chosen in placement_sets(board):
        if multiset_of(chosen) == wanted:
            return tuple(_assigned({p.start: p.gpcs for p in chosen}, sizes))
    raise InputError(f"instances of {wanted} GPCs never fit {board.name}; use smaller ones")


def _assigned(starts: dict[int, int], sizes: tuple[tuple[Task, int], ...]) -> Iterator[Instance]:
    free = dict(starts)
    for task, gpcs in sizes:
        start = next(place for place, size in free.items() if size == gpcs)
        del free[start]
        yield Instance(start, gpcs, task)


def fits(board: Board, sizes: tuple[int, ...]) -> bool:
    """Whether instances of these sizes can exist at once."""
    return any(
        Counter(multiset_of(placements)) == Counter(sizes) for placements in placement_sets(board)
    )


@dataclass(frozen=True)
class _TenantInstances:
    """Instances of one tenant."""

    serving: Multiset
    training: int | None
    goodput: float

    @property
    def sizes(self) -> Multiset:
        return (*self.serving, *(() if self.training is None else (self.training,)))


def static_policies(scenario: Scenario, layouts: int = SIMULATED) -> tuple[Policy, ...]:
    """The splits worth simulating: the best layouts of the fluid model and the paper's splits."""
    return (*_best_layouts(scenario)[:layouts], *_papers_splits(scenario))


def _papers_splits(scenario: Scenario) -> Iterator[Policy]:
    board = scenario.board
    if board.compute_slices != GPCS:
        return
    needed = sum(least_gpcs(tenant.service, board) for tenant in scenario.tenants)
    for serving in range(max(1, needed), GPCS):
        yield policy_named(f"static-{serving}-{GPCS - serving}")


def _best_layouts(scenario: Scenario) -> list[FixedLayout]:
    """Layouts in the order of their goodput in the fluid model."""
    fitting = set(multisets(scenario.board))
    layouts: dict[Multiset, tuple[float, tuple[_TenantInstances, ...]]] = {(): (0.0, ())}
    for number, tenant in enumerate(scenario.tenants):
        choices = list(_choices(scenario, tenant, number))
        longer: dict[Multiset, tuple[float, tuple[_TenantInstances, ...]]] = {}
        for used, (goodput, chosen) in layouts.items():
            for choice in choices:
                sizes = tuple(sorted((*used, *choice.sizes), reverse=True))
                total = goodput + choice.goodput
                if sizes in fitting and total > longer.get(sizes, (-1.0, ()))[0]:
                    longer[sizes] = (total, (*chosen, choice))
        layouts = longer
    ordered = sorted(layouts.values(), key=lambda layout: -layout[0])
    return [_layout(scenario.tenants, chosen) for _, chosen in ordered]


def _layout(tenants: tuple[ServedTenant, ...], chosen: tuple[_TenantInstances, ...]) -> FixedLayout:
    tasks: list[tuple[Task, int]] = []
    splits = []
    for tenant, choice in zip(tenants, chosen, strict=True):
        tasks += [(Task(tenant.name, Kind.INFERENCE), gpcs) for gpcs in choice.serving]
        serving = "+".join(map(str, choice.serving))
        if choice.training is not None:
            tasks.append((Task(tenant.name, Kind.RETRAINING), choice.training))
            serving += f" r{choice.training}"
        splits.append(serving)
    return FixedLayout(f"split {' | '.join(splits)}", tuple(tasks))


def _choices(scenario: Scenario, tenant: ServedTenant, number: int) -> Iterator[_TenantInstances]:
    board, service = scenario.board, tenant.service
    capability = service.capabilities_rps(board)
    arrivals = TenantArrivals(tenant.trace, scenario.slot_s, scenario.seed, number)
    slots = scenario.windows * scenario.slots
    end_s = tenant.offset_s + slots * scenario.slot_s
    received = arrivals.slots(tenant.offset_s, end_s).reshape(scenario.windows, -1)
    trains = any(drift.seconds is not None for drift in tenant.drifts)
    sizes = [None, *(service.training_sizes(board) if trains else ())]
    accuracies = {size: _accuracies(scenario, tenant, size) for size in sizes}
    for serving in multisets(board):
        able = all(capability[gpcs] > 0 for gpcs in serving)
        if not able or serving[0] < service.min_gpcs:
            continue
        answered = np.minimum(received, sum(capability[gpcs] for gpcs in serving) * scenario.slot_s)
        for size, accuracy in accuracies.items():
            yield _TenantInstances(serving, size, float((answered * accuracy).sum()))


def _accuracies(scenario: Scenario, tenant: ServedTenant, size: int | None) -> NDArray[np.float64]:
    """By window and slot, the accuracy with every retraining on an instance of `size` GPCs."""
    accuracies = np.empty((scenario.windows, scenario.slots))
    accuracy, trained = 1.0, True
    for window in range(scenario.windows):
        drift = tenant.drifts[window] if window < len(tenant.drifts) else None
        before = tenant.drifts[window - 1] if 0 < window <= len(tenant.drifts) else None
        if drift is not None and trained:
            accuracy = drift.accuracy_pre
        elif drift is not None and before is not None and before.accuracy_post:
            accuracy = min(1.0, accuracy * drift.accuracy_pre / before.accuracy_post)
        accuracies[window] = accuracy
        end = _last_slot(scenario, scenario.board, drift, size)
        trained = end is not None
        if drift is not None and end is not None:
            accuracies[window, end:] = accuracy = drift.accuracy_post
    return accuracies


def _last_slot(
    scenario: Scenario, board: Board, drift: Drift | None, size: int | None
) -> int | None:
    """The slot from which the retrained model serves; None if that is not in the window."""
    if drift is None or drift.seconds is None or size is None:
        return None
    slots = int(np.ceil(drift.seconds.at(board.sms_of(size)) / scenario.slot_s))
    return slots if slots < scenario.slots else None
