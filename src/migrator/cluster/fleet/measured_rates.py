"""The cluster scenario with the rates that its tenants have now."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from migrator.cluster.fleet.messages import Report
from migrator.cluster.scenario import ClusterScenario, ClusterTenant
from migrator.core.scenario import ServedTenant, Trace

LEAST_RPS = 1.0
"""Minimum rate in requests per second: a tenant at 0 would be moved without a gain."""
FEWEST_S = 5.0
"""Minimum time over which a rate is measured, in seconds."""


class MeasuredRates:
    """Requests per second of every tenant over the last window, on all GPUs."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._before: dict[tuple[str, str], int] = {}
        self._total: dict[str, int] = {}
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def add(self, report: Report, now_s: float) -> None:
        """Add the counters of one GPU, which restart at 0 with its daemon."""
        for name, tenant in report.tenants.items():
            before = self._before.get((report.gpu, name), tenant.received)
            self._before[report.gpu, name] = tenant.received
            came = tenant.received - before if tenant.received >= before else tenant.received
            self._total[name] = self._total.get(name, 0) + came
            samples = self._seen.setdefault(name, deque())
            samples.append((now_s, self._total[name]))
            while len(samples) > 2 and samples[1][0] < now_s - self._window_s:
                samples.popleft()

    def rates_rps(self) -> dict[str, float]:
        """Rates of tenants that have been observed for long enough."""
        rates = {}
        for name, samples in self._seen.items():
            took_s = samples[-1][0] - samples[0][0]
            if took_s >= min(FEWEST_S, self._window_s):
                rates[name] = max(LEAST_RPS, (samples[-1][1] - samples[0][1]) / took_s)
        return rates


def current_scenario(
    scenario: ClusterScenario,
    gpus: Collection[str],
    rates_rps: Mapping[str, float],
    *,
    move_s: float | None = None,
) -> ClusterScenario:
    """The scenario with these GPUs and rates; `move_s` overrides the price of a move."""
    rules = scenario.rules if move_s is None else replace(scenario.rules, move_s=move_s)
    return replace(
        scenario,
        gpus=tuple(gpu for gpu in scenario.gpus if gpu.name in gpus),
        tenants=tuple(
            _measured(tenant, rates_rps, scenario.window_s) for tenant in scenario.tenants
        ),
        rules=rules,
    )


def _measured(
    tenant: ClusterTenant, rates_rps: Mapping[str, float], window_s: float
) -> ClusterTenant:
    rate_rps = rates_rps.get(tenant.name)
    if rate_rps is None:
        return tenant
    seconds = round(window_s)
    total = np.floor(np.arange(1, 2 * seconds + 1) * rate_rps + 0.5).astype(np.int64)
    trace = Trace("measured", np.diff(total, prepend=0))

    def now(served: ServedTenant) -> ServedTenant:
        return replace(served, trace=trace, offset_s=seconds)

    return replace(tenant, served={board: now(served) for board, served in tenant.served.items()})
