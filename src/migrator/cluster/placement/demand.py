"""What a tenant asks of a board in the next window: the view that the single-GPU planner gets.

Tenants of one entry are of one kind. A placement lasts longer than a window, so what is known of
a kind is put together: scenarios of arrivals are taken in turn from several of its tenants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board
from migrator.core.cluster import ClusterScenario, ClusterTenant, SparingService
from migrator.core.errors import InputError
from migrator.core.problem import Charge, Problem, Tenant
from migrator.core.scenario import ServedTenant
from migrator.forecast.forecaster import Forecaster
from migrator.forecast.registry import forecaster
from migrator.policies.planning import problem_of
from migrator.policies.policy import Observation, RetrainingState, TenantView
from migrator.simulate.learning import Learner
from migrator.workload.traces.requests import Arrivals

ASKED = 16
"""Tenants of a kind whose histories are looked at, evenly spaced."""


@dataclass(frozen=True, eq=False)
class Kind:
    """Tenants that are alike to the planner."""

    views: Mapping[str, TenantView]
    """Board -> one of them as a policy sees it at the window's start."""
    mean_rps: float

    def tenant(self, board: Board, slot_s: float, slots: int) -> Tenant:
        """One of them alone as a planning problem has it."""
        return window_problem(board, slot_s, slots, (self.views[board.name],)).tenants[0]


def window_problem(board: Board, slot_s: float, slots: int, views: Sequence[TenantView]) -> Problem:
    """The next window of these tenants on the board, nothing held before."""
    return problem_of(observed(board, slot_s, slots, views), Charge.PAPER)


def observed(board: Board, slot_s: float, slots: int, views: Sequence[TenantView]) -> Observation:
    """The board at a window's start; names are made distinct, as alike tenants share a view."""
    named = tuple(
        replace(each, service=replace(each.service, tenant=f"{number}"))
        for number, each in enumerate(views)
    )
    return Observation(board, slot_s, slots, 0, named, ())


def kinds_of(scenario: ClusterScenario) -> dict[int, Kind]:
    """Entry -> the kind of its tenants."""
    ahead = forecaster(scenario.forecaster)
    members: dict[int, list[ClusterTenant]] = {}
    for each in scenario.tenants:
        members.setdefault(each.entry, []).append(each)
    return {entry: _kind(scenario, each, ahead) for entry, each in members.items()}


def _kind(scenario: ClusterScenario, members: Sequence[ClusterTenant], ahead: Forecaster) -> Kind:
    spaced = np.unique(np.linspace(0, len(members) - 1, ASKED).astype(int))
    rows = [_ahead(scenario, members[index], ahead) for index in spaced]
    count = max(len(each) for each in rows)
    mixed = np.array(
        [rows[row % len(rows)][row % len(rows[row % len(rows)])] for row in range(count)]
    )
    views = {board: _view(scenario, served, mixed) for board, served in members[0].served.items()}
    return Kind(views, float(mixed.mean()) / scenario.slot_s)


def _ahead(
    scenario: ClusterScenario, tenant: ClusterTenant, ahead: Forecaster
) -> NDArray[np.float64]:
    served = next(iter(tenant.served.values()))
    arrivals = Arrivals(served.trace, scenario.slot_s, scenario.seed, 0)
    history = arrivals.slots(served.offset_s % scenario.slot_s, served.offset_s)
    return ahead.ahead(history, scenario.slots, scenario.slots)


def _view(
    scenario: ClusterScenario, served: ServedTenant, ahead: NDArray[np.float64]
) -> TenantView:
    learner = Learner(served.drifts)
    learner.begin(0.0, running=False)
    job, service = learner.job, served.service
    if not isinstance(service, SparingService):
        raise InputError(f"{served.name}: it was not read from a cluster scenario; read it as one")
    return TenantView(
        service=replace(service, spare=scenario.rules.spare),
        history=np.empty(0),
        ahead=ahead,
        retraining=None
        if job is None
        else RetrainingState(learner.accuracy, job.accuracy_expected, job.seconds, 0.0, None),
        overhead_s=service.profile.overhead.total_s(mig=True, prepared=scenario.prepared),
        accuracy=learner.accuracy,
    )
