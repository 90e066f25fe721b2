"""The best split that never changes, chosen in hindsight.

Every layout in which each tenant has instances to serve and at most one to retrain is valued in a
fluid model with the requests that came. The best ones are then simulated, and the paper's splits
beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.advise.fixed_layout import FixedLayout
from migrator.control.observation import Policy, policy_named
from migrator.core.catalogue import Board
from migrator.core.instance import Kind, Task
from migrator.core.placement import Multiset, multisets
from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.policies.layouts import least_gpcs
from migrator.policies.static import GPCS
from migrator.workload.traces.requests import TenantArrivals

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
