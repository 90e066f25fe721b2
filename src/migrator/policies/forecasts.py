"""Who says what is ahead of every tenant, for the policies that have sight of a forecast.

One forecaster for all tenants, or under `auto` whoever was best for each of them: pinball loss
over the latest windows says who may replace the simple one (`forecast/selection`), and the
goodput of the plans it leads to says whether it does. Those plans are of windows that are over,
so they are held to what came; others are forecast by the simple one meanwhile. They are made
under the `paper` charge, which is quick, whatever the policy plans with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import SolverError
from migrator.core.problem import Charge, Problem
from migrator.forecast.forecaster import Forecaster
from migrator.forecast.residuals import without_gaps
from migrator.forecast.selection import Auto, Choice, fingerprint
from migrator.plan.check import goodput_of
from migrator.plan.solve import make_plan
from migrator.policies.planning import problem_of
from migrator.policies.policy import Observation, TenantView

Ahead = NDArray[np.float64]

PLANNED_WINDOWS = 6
"""So many of the windows of the backtest are planned again: evenly spaced, as bursts are rare."""
MARGIN = 0.001
"""Of the goodput: so few windows cannot tell less from luck, so the loss decides within it."""
_KEPT = 4096


class Forecasts(Protocol):
    """What is ahead of all tenants of a GPU."""

    def ahead(self, now: Observation) -> tuple[Ahead, ...]:
        """Scenarios of the slots left of the window, tenant by tenant."""
        ...

    def words(self, now: Observation) -> tuple[str, ...]:
        """Who forecasts each tenant, and why."""
        ...


def forecasts_of(forecaster: Forecaster) -> Forecasts:
    """All tenants by the same forecaster, or each by its own where that is `auto`'s to say."""
    return Chosen(forecaster) if isinstance(forecaster, Auto) else Alike(forecaster)


class Alike:
    """Every tenant by the same forecaster."""

    def __init__(self, forecaster: Forecaster) -> None:
        self._forecaster = forecaster

    def ahead(self, now: Observation) -> tuple[Ahead, ...]:
        """Scenarios of the slots left of the window, tenant by tenant."""
        return tuple(
            self._forecaster.ahead(each.history, now.slots_left, now.slots) for each in now.tenants
        )

    def words(self, now: Observation) -> tuple[str, ...]:
        """Who forecasts each tenant, and why."""
        return (self._forecaster.name,) * len(now.tenants)


class Chosen:
    """Every tenant by whoever was best for it, chosen once per window."""

    def __init__(self, auto: Auto) -> None:
        self._auto = auto
        self._worth: dict[tuple[object, ...], float] = {}

    def ahead(self, now: Observation) -> tuple[Ahead, ...]:
        """Scenarios of the slots left of the window, tenant by tenant."""
        return tuple(
            self._auto.named(choice.chosen).ahead(each.history, now.slots_left, now.slots)
            for each, choice in zip(now.tenants, self.choices(now), strict=True)
        )

    def words(self, now: Observation) -> tuple[str, ...]:
        """Who forecasts each tenant, and why."""
        return tuple(str(each) for each in self.choices(now))

    def choices(self, now: Observation) -> tuple[Choice, ...]:
        """Who forecasts each tenant: the same from the window's start to its end."""
        start = _at_start(now)
        by_loss = [self._auto.explain(each.history, now.slots) for each in start.tenants]
        return tuple(self._settled(start, m, each) for m, each in enumerate(by_loss))

    def _settled(self, start: Observation, m: int, by_loss: Choice) -> Choice:
        """Of those with less loss than the simple forecaster, the one whose plans bring most."""
        rivals = by_loss.rivals
        windows = min(by_loss.windows, *(len(e.history) // start.slots - 2 for e in start.tenants))
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
        """Of the window that ended `ago` windows ago, had `name` forecast tenant `m` for its plan.

        The other tenants were forecast by the simple one.
        """
        who = tuple(name if other == m else simple for other in range(len(start.tenants)))
        past = [each.history[: len(each.history) - ago * start.slots] for each in start.tenants]
        key = (who, *(fingerprint(each, start.slots) for each in past))
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
        return goodput_of(_with(problem, came), plan)


def _with(problem: Problem, came: Sequence[Ahead]) -> Problem:
    tenants = (
        replace(each, received=(tuple(map(float, counts)),))
        for each, counts in zip(problem.tenants, came, strict=True)
    )
    return replace(problem, tenants=tuple(tenants))


def _at_start(now: Observation) -> Observation:
    """As the window began, histories in whole windows: what is left over is their oldest part."""

    def cut(view: TenantView) -> TenantView:
        until = len(view.history) - now.slot
        whole = view.history[max(0, until) % now.slots : max(0, until)]
        return replace(view, history=without_gaps(whole))

    return replace(now, slot=0, tenants=tuple(map(cut, now.tenants)), decided=None)
