"""The best split that never changes, chosen in hindsight.

Every layout in which each tenant has instances to serve and at most one to retrain is valued in a
fluid model with the requests that came. The best ones are then simulated, and the paper's splits
beside them. The ceiling is what no planner can pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.control.observation import Policy, policy_named
from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.instance import Instance, Kind, Task
from migrator.core.placement import Multiset, multiset_of, multisets, placement_sets
from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.policies.layouts import least_gpcs
from migrator.policies.policy import Decision, Observation
from migrator.policies.static import GPCS
from migrator.workload.arrivals import TenantArrivals


def ceiling(scenario: Scenario) -> tuple[float, ...]:
    """By window, the goodput if every request is answered in time by the best model there could be.

    It counts expected correct answers: a run that draws each answer may exceed it by chance.
    """
    totals = np.zeros(scenario.windows)
    for number, tenant in enumerate(scenario.tenants):
        totals += _tenant_ceiling(scenario, tenant, number)
    return tuple(float(each) for each in totals)


def best_accuracies(drifts: tuple[Drift, ...], windows: int) -> tuple[float, ...]:
    """By window, the highest accuracy that any choice of retrainings can reach in it.

    A retraining may be refused, end in its window or in a later one. A model that is not retrained
    loses accuracy as the simulator has it.
    """
    found: list[float] = []
    for window in range(windows):
        drift = drifts[window] if window < len(drifts) else None
        before = drifts[window - 1] if 0 < window <= len(drifts) else None
        kept = 1.0
        if drift is not None and before is not None and before.accuracy_post:
            kept = drift.accuracy_pre / before.accuracy_post
        reached = [min(1.0, found[-1] * kept) if found else 1.0]
        if drift is not None:
            reached = [drift.accuracy_pre, *(reached if found else ())]
            reached += [drift.accuracy_post] if drift.seconds is not None else []
        found.append(max(reached))
    return tuple(found)


def _tenant_ceiling(scenario: Scenario, tenant: ServedTenant, number: int) -> NDArray[np.float64]:
    """A request that arrives shortly before a window's end may be answered by the next one's
    model."""
    best = best_accuracies(tenant.drifts, scenario.windows)
    arrivals = TenantArrivals(tenant.trace, scenario.slot_s, scenario.seed, number)
    window_s, offset_s = scenario.window_s, tenant.offset_s
    totals = np.zeros(scenario.windows)
    for window in range(scenario.windows):
        begin_s, end_s = window * window_s, (window + 1) * window_s
        times = arrivals.times(offset_s + begin_s, offset_s + end_s) - offset_s
        until = np.floor((times + tenant.service.slo_s) / window_s).astype(int)
        until = np.clip(until, window, scenario.windows - 1)
        reachable = np.maximum.accumulate(best[window:])
        totals[window] = reachable[until - window].sum()
    return totals


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
        start = next(each for each, size in free.items() if size == gpcs)
        del free[start]
        yield Instance(start, gpcs, task)


def fits(board: Board, sizes: tuple[int, ...]) -> bool:
    """Whether instances of these sizes can exist at once."""
    return any(Counter(multiset_of(each)) == Counter(sizes) for each in placement_sets(board))


SIMULATED = 3
"""Layouts of the fluid model's order that are simulated."""


@dataclass(frozen=True)
class _Choice:
    """Instances of one tenant."""

    serving: Multiset
    training: int | None
    goodput: float

    @property
    def sizes(self) -> Multiset:
        return (*self.serving, *(() if self.training is None else (self.training,)))


def static_policies(scenario: Scenario) -> tuple[Policy, ...]:
    """The splits worth simulating: the best layouts of the fluid model and the paper's splits."""
    return (*_best_layouts(scenario), *_papers_splits(scenario))


def _papers_splits(scenario: Scenario) -> Iterator[Policy]:
    board = scenario.board
    if board.compute_slices != GPCS:
        return
    needed = sum(least_gpcs(each.service, board) for each in scenario.tenants)
    for serving in range(max(1, needed), GPCS):
        yield policy_named(f"static-{serving}-{GPCS - serving}")


def _best_layouts(scenario: Scenario) -> list[FixedLayout]:
    """Layouts in the order of their goodput in the fluid model."""
    fitting = set(multisets(scenario.board))
    found: dict[Multiset, tuple[float, tuple[_Choice, ...]]] = {(): (0.0, ())}
    for number, tenant in enumerate(scenario.tenants):
        choices = list(_choices(scenario, tenant, number))
        longer: dict[Multiset, tuple[float, tuple[_Choice, ...]]] = {}
        for used, (goodput, chosen) in found.items():
            for each in choices:
                both = tuple(sorted((*used, *each.sizes), reverse=True))
                total = goodput + each.goodput
                if both in fitting and total > longer.get(both, (-1.0, ()))[0]:
                    longer[both] = (total, (*chosen, each))
        found = longer
    ordered = sorted(found.values(), key=lambda each: -each[0])[:SIMULATED]
    return [_layout(scenario.tenants, chosen) for _, chosen in ordered]


def _layout(tenants: tuple[ServedTenant, ...], chosen: tuple[_Choice, ...]) -> FixedLayout:
    tasks: list[tuple[Task, int]] = []
    words = []
    for tenant, each in zip(tenants, chosen, strict=True):
        tasks += [(Task(tenant.name, Kind.INFERENCE), gpcs) for gpcs in each.serving]
        serving = "+".join(map(str, each.serving))
        if each.training is not None:
            tasks.append((Task(tenant.name, Kind.RETRAINING), each.training))
            serving += f" r{each.training}"
        words.append(serving)
    return FixedLayout(f"split {' | '.join(words)}", tuple(tasks))


def _choices(scenario: Scenario, tenant: ServedTenant, number: int) -> Iterator[_Choice]:
    board, service = scenario.board, tenant.service
    capability = service.capabilities_rps(board)
    arrivals = TenantArrivals(tenant.trace, scenario.slot_s, scenario.seed, number)
    slots = scenario.windows * scenario.slots
    end_s = tenant.offset_s + slots * scenario.slot_s
    received = arrivals.slots(tenant.offset_s, end_s).reshape(scenario.windows, -1)
    trains = any(each.seconds is not None for each in tenant.drifts)
    sizes = [None, *(service.training_sizes(board) if trains else ())]
    accuracies = {size: _accuracies(scenario, tenant, size) for size in sizes}
    for serving in multisets(board):
        able = all(capability[gpcs] > 0 for gpcs in serving)
        if not able or serving[0] < service.min_gpcs:
            continue
        answered = np.minimum(received, sum(capability[e] for e in serving) * scenario.slot_s)
        for size, accuracy in accuracies.items():
            yield _Choice(serving, size, float((answered * accuracy).sum()))


def _accuracies(scenario: Scenario, tenant: ServedTenant, size: int | None) -> NDArray[np.float64]:
    """By window and slot, the accuracy with every retraining on an instance of `size` GPCs."""
    found = np.empty((scenario.windows, scenario.slots))
    accuracy, trained = 1.0, True
    for window in range(scenario.windows):
        drift = tenant.drifts[window] if window < len(tenant.drifts) else None
        before = tenant.drifts[window - 1] if 0 < window <= len(tenant.drifts) else None
        if drift is not None and trained:
            accuracy = drift.accuracy_pre
        elif drift is not None and before is not None and before.accuracy_post:
            accuracy = min(1.0, accuracy * drift.accuracy_pre / before.accuracy_post)
        found[window] = accuracy
        end = _last_slot(scenario, scenario.board, drift, size)
        trained = end is not None
        if drift is not None and end is not None:
            found[window, end:] = accuracy = drift.accuracy_post
    return found


def _last_slot(
    scenario: Scenario, board: Board, drift: Drift | None, size: int | None
) -> int | None:
    """The slot from which the retrained model serves; None if that is not in the window."""
    if drift is None or drift.seconds is None or size is None:
        return None
    slots = int(np.ceil(drift.seconds.at(board.sms_of(size)) / scenario.slot_s))
    return slots if slots < scenario.slots else None
