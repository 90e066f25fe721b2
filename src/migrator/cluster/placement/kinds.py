"""Kinds of tenants, and what a set of them gets as planned.

Tenants of one entry are of one kind. A placement lasts longer than a window, so the forecast of a
kind combines scenarios of arrivals from several of its tenants. The plan is that of the exact
planner under the `paper` charge, with as many retrainings as fit: ten times as fast as under
`survivors`, proven optimal, and about half a percent away from it (docs/cluster.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.scenario import ClusterScenario, ClusterService, ClusterTenant, Worth
from migrator.core.catalogue import Board
from migrator.core.errors import InfeasibleError, InputError, SolverError
from migrator.core.problem import Charge, Plan, Problem, Tenant
from migrator.core.scenario import ServedTenant
from migrator.forecast.forecaster import Forecaster
from migrator.forecast.selection import forecaster
from migrator.planning.check import requests_short
from migrator.policies.planning import planned
from migrator.policies.policy import Observation, RetrainingState, TenantView
from migrator.policies.window_problem import problem_of
from migrator.workload.tenant_arrivals import TenantArrivals

SAMPLED_TENANTS = 16
"""Number of tenants of a kind whose histories are used, evenly spaced."""


@dataclass(frozen=True, eq=False)
class TenantKind:
    """Tenants that do not differ for the planner."""

    views: Mapping[str, TenantView]
    """Board -> a tenant of this kind as a policy sees it at the window's start."""
    mean_rps: float

    def tenant(self, board: Board, slot_s: float, slots: int) -> Tenant | None:
        """A tenant of this kind in a planning problem; None if the board cannot serve it."""
        if board.name not in self.views:
            return None
        return window_problem(board, slot_s, slots, (self.views[board.name],)).tenants[0]


def window_problem(board: Board, slot_s: float, slots: int, views: Sequence[TenantView]) -> Problem:
    """The next window of these tenants on the empty board."""
    return problem_of(observation_of(board, slot_s, slots, views), Charge.PAPER)


def observation_of(
    board: Board, slot_s: float, slots: int, views: Sequence[TenantView]
) -> Observation:
    """The board at a window's start; tenants get distinct names, since kinds share a view."""
    named = tuple(
        replace(view, service=replace(view.service, tenant=f"{number}"))
        for number, view in enumerate(views)
    )
    return Observation(board, slot_s, slots, 0, named, ())


def tenant_kinds(scenario: ClusterScenario) -> dict[int, TenantKind]:
    """Entry -> the kind of its tenants."""
    ahead = forecaster(scenario.forecaster)
    members: dict[int, list[ClusterTenant]] = {}
    for tenant in scenario.tenants:
        members.setdefault(tenant.entry, []).append(tenant)
    return {entry: _kind(scenario, member, ahead) for entry, member in members.items()}


def _kind(
    scenario: ClusterScenario, members: Sequence[ClusterTenant], ahead: Forecaster
) -> TenantKind:
    spaced = np.unique(np.linspace(0, len(members) - 1, SAMPLED_TENANTS).astype(int))
    rows = [_ahead(scenario, members[index], ahead) for index in spaced]
    count = max(len(row) for row in rows)
    mixed = np.array(
        [rows[row % len(rows)][row % len(rows[row % len(rows)])] for row in range(count)]
    )
    views = {board: _view(scenario, served, mixed) for board, served in members[0].served.items()}
    return TenantKind(views, float(mixed.mean()) / scenario.slot_s)


def _ahead(
    scenario: ClusterScenario, tenant: ClusterTenant, ahead: Forecaster
) -> NDArray[np.float64]:
    served = next(iter(tenant.served.values()))
    arrivals = TenantArrivals(served.trace, scenario.slot_s, scenario.seed, 0)
    history = arrivals.slots(served.offset_s % scenario.slot_s, served.offset_s)
    return ahead.ahead(history, scenario.slots, scenario.slots)


def _view(
    scenario: ClusterScenario, served: ServedTenant, ahead: NDArray[np.float64]
) -> TenantView:
    service = served.service
    drift = served.drifts[0] if served.drifts else None
    accuracy = drift.accuracy_pre if drift is not None else 1.0
    if not isinstance(service, ClusterService):
        raise InputError(f"{served.name}: not from a cluster scenario; read it with read_cluster")
    return TenantView(
        service=replace(service, spare=scenario.rules.spare),
        history=np.empty(0),
        ahead=ahead,
        retraining=None
        if drift is None or drift.seconds is None
        else RetrainingState(accuracy, drift.accuracy_expected, drift.seconds, 0.0, None),
        overhead_s=service.profile.overhead.total_s(mig=True, prepared=scenario.prepared),
        accuracy=accuracy,
    )


def planned_worth(observation: Observation, short_cost: float = 0.0) -> Worth:
    """Return what the tenants get in the next window, as planned."""
    try:
        return _worth(*planned(observation, Charge.PAPER), short_cost)
    except (SolverError, InfeasibleError):
        pass
    # no schedule with all retrainings was found in time: plan without retrainings
    served = tuple(replace(tenant, retraining=None) for tenant in observation.tenants)
    try:
        return _worth(*planned(replace(observation, tenants=served), Charge.PAPER), short_cost)
    except SolverError:
        return Worth()


def _worth(problem: Problem, plan: Plan, short_cost: float) -> Worth:
    short = sum(requests_short(problem, plan).values())
    asked = sum(tenant.floor * tenant.requests for tenant in problem.tenants)
    value = plan.goodput + plan.weighting + short_cost * (asked - short)
    return Worth(plan.goodput, value, short)
