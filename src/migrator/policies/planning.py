"""Converts an observation and its forecasts to a planning problem and solves it.

Also chooses the forecaster of every tenant: with `auto`, the one whose plans of past windows have
the most goodput.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board
from migrator.core.errors import InfeasibleError, SolverError
from migrator.core.problem import (
    Charge,
    Initial,
    Instance,
    Kind,
    Plan,
    Problem,
    RunningRetraining,
    Task,
    Tenant,
)
from migrator.core.profiles import Service
from migrator.forecast.forecaster import Forecaster, without_gaps
from migrator.forecast.selection import Auto, Choice, fingerprint
from migrator.plan.check import goodput_of
from migrator.plan.solve import make_plan
from migrator.policies.mps_workers import BUSY, beside_busy
from migrator.policies.policy import Observation, TenantView, remaining_s, running, waiting

Ahead = NDArray[np.float64]

PLANNED_WINDOWS = 6
"""Number of windows of the backtest that are planned again, evenly spaced, as bursts are rare."""
MARGIN = 0.001
"""Share of the goodput below which a difference may be chance on so few windows. Within it the loss
decides."""
_KEPT = 4096


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
            self._forecaster.ahead(each.history, now.slots_left, now.slots) for each in now.tenants
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
            self._auto.named(choice.chosen).ahead(each.history, now.slots_left, now.slots)
            for each, choice in zip(now.tenants, self.choices(now), strict=True)
        )

    def words(self, now: Observation) -> tuple[str, ...]:
        """The forecaster of each tenant, and why it was chosen."""
        return tuple(str(each) for each in self.choices(now))

    def choices(self, now: Observation) -> tuple[Choice, ...]:
        """The forecaster of each tenant, the same throughout the window."""
        start = _at_start(now)
        by_loss = [self._auto.explain(each.history, now.slots) for each in start.tenants]
        return tuple(self._settled(start, m, each) for m, each in enumerate(by_loss))

    def _settled(self, start: Observation, m: int, by_loss: Choice) -> Choice:
        """Of the forecasters with less loss than the simple one, the one whose plans have most
        goodput."""
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
        """Goodput of the window that ended `ago` windows ago, planned with `name` for tenant `m`.

        The other tenants use the simple forecaster.
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
    """The observation at the window's start; histories lose old slots beyond whole windows."""

    def cut(view: TenantView) -> TenantView:
        until = len(view.history) - now.slot
        whole = view.history[max(0, until) % now.slots : max(0, until)]
        return replace(view, history=without_gaps(whole))

    return replace(now, slot=0, tenants=tuple(map(cut, now.tenants)), decided=None)


def planned(
    observation: Observation, charge: Charge, *, optional: bool = False
) -> tuple[Problem, Plan]:
    """The window's problem and plan.

    With `optional`, the plan retrains those tenants for which it pays, in this window and after
    it. Otherwise it retrains as many as fit: if not all do, they are added one after the other
    while the rest still fits. Those with the highest value (accuracy gained x requests) per GPC
    and slot come first.
    """
    problem = problem_of(observation, charge, optional=optional)
    try:
        return problem, make_plan(problem, steady=True)
    except InfeasibleError:
        if not any(problem.must_retrain(each) for each in problem.tenants):
            raise
    problem = _with_what_fits(problem)
    return problem, make_plan(problem, steady=True)


def _with_what_fits(problem: Problem) -> Problem:
    wanted = [each for each in problem.tenants if problem.must_retrain(each)]
    fitting = _retraining_only(problem, ())
    kept: tuple[Tenant, ...] = ()
    for tenant in sorted(wanted, key=_promise, reverse=True):
        trial = _retraining_only(problem, (*kept, tenant))
        try:
            make_plan(trial.with_charge(Charge.PAPER), steady=True)
        except InfeasibleError:
            continue
        fitting, kept = trial, (*kept, tenant)
    return fitting


def problem_of(observation: Observation, charge: Charge, *, optional: bool = False) -> Problem:
    """The rest of the window as a planning problem.

    A retraining that no size can finish within the window is left out, and an `optional` one
    that would probably not fit. Durations are means: plans with longer ones hold the instance of
    a retraining that has ended, which cost more than plans that run late.
    """
    return Problem(
        board=observation.board,
        slot_s=observation.slot_s,
        slots=observation.slots_left,
        charge=charge,
        tenants=tuple(_tenant(observation, view, optional) for view in observation.tenants),
        initial=_initial(observation, charge) if observation.held else None,
    )


def _promise(tenant: Tenant) -> float:
    """Requests that only the retrained model would answer correctly, per GPC and slot it takes."""
    requests = sum(map(sum, tenant.received)) / len(tenant.received)
    effort = min(gpcs * slots for gpcs, slots in (tenant.retraining_slots or {1: 1}).items())
    return (tenant.accuracy_post - tenant.accuracy_pre) * requests / effort


def _retraining_only(problem: Problem, kept: tuple[Tenant, ...]) -> Problem:
    """The same problem in which only `kept` start a retraining."""
    tenants = tuple(
        each if each in kept or not problem.must_retrain(each) else _spared(each)
        for each in problem.tenants
    )
    return replace(problem, tenants=tenants)


def _spared(tenant: Tenant) -> Tenant:
    return replace(tenant, retraining_slots=None)


def _tenant(observation: Observation, view: TenantView, optional: bool) -> Tenant:
    assert view.ahead is not None, "a policy that plans has sight of what is ahead"
    state = view.retraining
    return Tenant(
        name=view.name,
        received=tuple(tuple(map(float, scenario)) for scenario in view.ahead),
        capability=_capability(observation, view),
        accuracy_pre=view.accuracy,
        accuracy_post=view.accuracy if state is None else state.accuracy_post,
        retraining_slots=_retraining_slots(observation, view, late=optional),
        overhead_s=view.overhead_s,
        min_gpcs=view.service.min_gpcs,
        retraining_optional=optional,
        # per request of the rest of the window
        value_after=optional * view.value_after * observation.slots / observation.slots_left,
    )


def _capability(observation: Observation, view: TenantView) -> dict[int, float]:
    """Requests per slot of the sizes that answer within the objective, if nothing slows them down.

    Shares slow each other down, instances do not.
    """
    service, board = view.service, observation.board
    per_second = service.capabilities_rps(board)
    if board.is_of_shares:
        per_second = {
            gpcs: _beside_busy_rps(service, board, gpcs, rps) for gpcs, rps in per_second.items()
        }
    return {gpcs: rps * observation.slot_s for gpcs, rps in per_second.items() if rps > 0}


def _beside_busy_rps(service: Service, board: Board, gpcs: int, alone_rps: float) -> float:
    slowed, slowdown = beside_busy(service, 100 * board.sms_of(gpcs) / board.sms, BUSY)
    # a batch that is in time only beside idle neighbours still counts: they may be idle
    return (slowed.capabilities_rps(board)[gpcs] or alone_rps) / slowdown


def _retraining_slots(
    observation: Observation, view: TenantView, *, late: bool
) -> dict[int, int] | None:
    """Size -> slots in which a waiting retraining can finish in time; None if none waits.

    `late`: a size counts only if four of five retrainings would finish in time on it.
    """
    if view.name not in {each.name for each in waiting(observation)}:
        return None
    board = observation.board
    drain_s = _drain_s(observation)

    def slots(gpcs: int, *, late: bool) -> int:
        seconds = remaining_s(view, board.sms_of(gpcs), late=late) + drain_s
        return max(1, math.ceil(seconds / observation.slot_s))

    in_time = {
        gpcs: slots(gpcs, late=False)
        for gpcs in view.service.training_sizes(board)
        if slots(gpcs, late=late) <= observation.slots_left
    }
    return in_time or None


def _drain_s(observation: Observation) -> float:
    """The longest time that an instance may be occupied by its last batch before it is destroyed.

    Without it a retraining that ends within milliseconds of a slot's end would lose its instance
    just before.
    """
    smallest = observation.board.sms_of(observation.board.sizes[0])
    services = [view.service for view in observation.tenants]
    return max(each.latency_s(each.batch, smallest) for each in services)


def _initial(observation: Observation, charge: Charge) -> Initial:
    kept = running(observation)
    instances = (
        _as_held(observation, each, charge)
        for each in observation.held
        if isinstance(each, Instance) and each not in kept.values()
    )
    return Initial(
        instances=(*instances, *kept.values()),
        retrainings=tuple(
            RunningRetraining(name, _slots_left(observation, name, instance))
            for name, instance in kept.items()
        ),
    )


def _as_held(observation: Observation, instance: Instance, charge: Charge) -> Instance:
    """An instance without a running retraining, as the planner may use it.

    The instance of a finished retraining is warm for its tenant, which `survivors` takes into
    account. Under `paper` it would be a change of the inference task, so there it is unused.
    """
    task = instance.task
    if task is None:
        return instance
    left_over = task.kind is Kind.RETRAINING
    sizes = _capability(observation, observation.tenant(task.tenant))
    if instance.gpcs not in sizes or (left_over and charge is Charge.PAPER):
        return replace(instance, task=None)
    return replace(instance, task=Task(task.tenant, Kind.INFERENCE))


def _slots_left(observation: Observation, tenant: str, instance: Instance) -> int:
    """Slots until a running retraining ends; limited to the window's end."""
    view = observation.tenant(tenant)
    left_s = remaining_s(view, observation.board.sms_of(instance.gpcs))
    return min(observation.slots_left, max(1, math.ceil(left_s / observation.slot_s)))
