"""The forecasts of all tenants of a GPU, and the choice of a forecaster for each.

With `auto`, a tenant gets the forecaster whose plans of past windows have the most goodput.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import SolverError
from migrator.core.problem import Charge, Problem
from migrator.forecast.forecaster import Forecaster, without_gaps
from migrator.forecast.selection import Auto, Choice, fingerprint
from migrator.planning.check import valued
from migrator.planning.solve import make_plan
from migrator.policies.policy import Observation, TenantView
from migrator.policies.window_problem import problem_of

Ahead = NDArray[np.float64]

PLANNED_WINDOWS = 6
"""Number of windows of the backtest that are planned again, evenly spaced, as bursts are rare."""
MARGIN = 0.001
"""Share of the goodput below which a difference may be chance on so few windows. Within it the loss
decides."""
_KEPT = 4096
"""Goodputs that are kept."""


class Forecasts(Protocol):
    """Forecasts for all tenants of a GPU."""

    def ahead(self, now: Observation) -> tuple[Ahead, ...]:
        """Scenarios of the remaining slots of the window, tenant by tenant."""

    def words(self, now: Observation) -> tuple[str, ...]:
        """The forecaster of each tenant, and why it was chosen."""


def forecasts_of(forecaster: Forecaster) -> Forecasts:
    """One forecaster for all tenants, or with `auto` one per tenant."""
    return Chosen(forecaster) if isinstance(forecaster, Auto) else Alike(forecaster)


class Alike:
    """The same forecaster for every tenant."""

    def __init__(self, forecaster: Forecaster) -> None:
        self._forecaster = forecaster

    def ahead(self, now: Observation) -> tuple[Ahead, ...]:
        """Scenarios of the remaining slots of the window, tenant by tenant."""
        return tuple(
            self._forecaster.ahead(tenant.history, now.slots_left, now.slots)
            for tenant in now.tenants
        )

    def words(self, now: Observation) -> tuple[str, ...]:
        """The forecaster of each tenant."""
        return (self._forecaster.name,) * len(now.tenants)


class Chosen:
    """The best forecaster for each tenant, chosen once per window."""

    def __init__(self, auto: Auto) -> None:
        self._auto = auto
        self._worth: dict[tuple[object, ...], float] = {}

    def ahead(self, now: Observation) -> tuple[Ahead, ...]:
        """Scenarios of the remaining slots of the window, tenant by tenant."""
        return tuple(
            self._auto.named(choice.chosen).ahead(tenant.history, now.slots_left, now.slots)
            for tenant, choice in zip(now.tenants, self.choices(now), strict=True)
        )

    def words(self, now: Observation) -> tuple[str, ...]:
        """The forecaster of each tenant, and why it was chosen."""
        return tuple(str(choice) for choice in self.choices(now))

    def choices(self, now: Observation) -> tuple[Choice, ...]:
        """The forecaster of each tenant, the same throughout the window."""
        start = _at_start(now)
        by_loss = [self._auto.explain(tenant.history, now.slots) for tenant in start.tenants]
        return tuple(self._settled(start, m, choice) for m, choice in enumerate(by_loss))

    def _settled(self, start: Observation, m: int, by_loss: Choice) -> Choice:
        """Of the forecasters with less loss than the simple one, the one whose plans have most
        goodput."""
        rivals = by_loss.rivals
        windows = min(
            by_loss.windows, *(len(tenant.history) // start.slots - 2 for tenant in start.tenants)
        )
        if not rivals or windows < 1:
            return by_loss
        spaced = np.unique(np.linspace(0, windows - 1, PLANNED_WINDOWS).astype(int)).tolist()
        goodputs = {
            name: sum(self._goodput(start, by_loss.simple, m, name, ago) for ago in spaced)
            for name in (by_loss.simple, *rivals)
        }
        enough = (1 - MARGIN) * max(goodputs.values())
        # rivals come in the order of their loss
        chosen = next((name for name in rivals if goodputs[name] >= enough), by_loss.simple)
        return replace(
            by_loss, chosen=chosen, goodputs=tuple(goodputs.items()), planned=len(spaced)
        )

    def _goodput(self, start: Observation, simple: str, m: int, name: str, ago: int) -> float:
        """Weighted goodput of the window that ended `ago` windows ago.

        It is planned with `name` for tenant `m`. The other tenants use the simple forecaster.
        """
        who = tuple(name if other == m else simple for other in range(len(start.tenants)))
        past = [
            tenant.history[: len(tenant.history) - ago * start.slots] for tenant in start.tenants
        ]
        key = (who, *(fingerprint(history, start.slots) for history in past))
        if key not in self._worth:
            if len(self._worth) >= _KEPT:
                self._worth.clear()
            self._worth[key] = self._planned(start, who, past)
        return self._worth[key]

    def _planned(self, start: Observation, who: tuple[str, ...], past: Sequence[Ahead]) -> float:
        views, came = [], []
        for view, name, history in zip(start.tenants, who, past, strict=True):
            before = history[: -start.slots]
            ahead = self._auto.named(name).ahead(before, start.slots, start.slots)
            views.append(replace(view, history=before, ahead=ahead, retraining=None))
            came.append(history[-start.slots :])
        problem = problem_of(replace(start, tenants=tuple(views), held=()), Charge.PAPER)
        try:
            plan = make_plan(problem, steady=True)
        except SolverError:
            return 0.0
        worth = valued(_with(problem, came), plan)
        return worth.goodput + worth.weighting


def _with(problem: Problem, came: Sequence[Ahead]) -> Problem:
    tenants = (
        replace(tenant, received=(tuple(map(float, counts)),))
        for tenant, counts in zip(problem.tenants, came, strict=True)
    )
    return replace(problem, tenants=tuple(tenants))


def _at_start(now: Observation) -> Observation:
    """The observation at the window's start; histories lose old slots beyond whole windows."""

    def cut(view: TenantView) -> TenantView:
        until = len(view.history) - now.slot
        whole = view.history[max(0, until) % now.slots : max(0, until)]
        return replace(view, history=without_gaps(whole))

    return replace(now, slot=0, tenants=tuple(map(cut, now.tenants)), decided=None)
