"""The forecasts of all tenants of a GPU, and the choice of a forecaster for each.

With `auto`, a tenant gets the forecaster with the least loss, unless the plans of past windows that
another one leads to have more goodput by more than chance.
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
MARGIN, DOUBT = 0.001, 2.0
"""Share of the goodput, and standard errors over the planned windows, by which a difference must be
larger. Otherwise it may be chance, and the loss decides: with bursts six windows say little."""
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
        """Of the forecasters with less loss than the simple one, that with the least, unless the
        plans of another one, or of the simple one, have more goodput."""
        rivals = by_loss.rivals
        windows = min(
            by_loss.windows, *(len(tenant.history) // start.slots - 2 for tenant in start.tenants)
        )
        if not rivals or windows < 1:
            return by_loss
        spaced = np.unique(np.linspace(0, windows - 1, PLANNED_WINDOWS).astype(int)).tolist()
        by_window = {
            name: np.array([self._goodput(start, by_loss.simple, m, name, ago) for ago in spaced])
            for name in (*rivals, by_loss.simple)
        }
        chosen = rivals[0]
        for name in (*rivals[1:], by_loss.simple):
            if _is_more(by_window[name], by_window[chosen]):
                chosen = name
        goodputs = tuple((name, float(worth.sum())) for name, worth in by_window.items())
        return replace(by_loss, chosen=chosen, goodputs=goodputs, planned=len(spaced))

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


def _is_more(goodputs: Ahead, others: Ahead) -> bool:
    """Whether goodputs of windows are more than others of the same windows, by more than chance."""
    gains = goodputs - others
    error = float(gains.std(ddof=1)) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    return float(gains.mean()) > max(MARGIN * float(others.mean()), DOUBT * error)


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
