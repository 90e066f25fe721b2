"""The goodput that no planner can pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.workload.tenant_arrivals import TenantArrivals


def ceiling(scenario: Scenario) -> tuple[float, ...]:
    """By window, the goodput if every request is answered in time by the best model there could be.

    It counts expected correct answers: a run that draws each answer may exceed it by chance.
    """
    totals = np.zeros(scenario.windows)
    for number, tenant in enumerate(scenario.tenants):
        totals += _tenant_ceiling(scenario, tenant, number)
    return tuple(float(total) for total in totals)


def best_accuracies(drifts: tuple[Drift, ...], windows: int) -> tuple[float, ...]:
    """By window, the highest accuracy that any choice of retrainings can reach in it.

    A retraining may be refused, end in its window or in a later one. A model that is not retrained
    loses accuracy as the simulator has it.
    """
    highest: list[float] = []
    for window in range(windows):
        drift = drifts[window] if window < len(drifts) else None
        before = drifts[window - 1] if 0 < window <= len(drifts) else None
        kept = 1.0
        if drift is not None and before is not None and before.accuracy_post:
            kept = drift.accuracy_pre / before.accuracy_post
        reached = [min(1.0, highest[-1] * kept) if highest else 1.0]
        if drift is not None:
            reached = [drift.accuracy_pre, *(reached if highest else ())]
            if drift.seconds is not None:
                reached += [drift.accuracy_post, *(other.accuracy_post for other in drift.others)]
        highest.append(max(reached))
    return tuple(highest)


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
