"""A plan as a figure: slices over time, each tenant's arrivals and goodput.

The series are computed from the plan by arithmetic of their own: a figure that reused the tables
of the planner would repeat its mistakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.core.problem import Charge, Instance, Kind, Plan, Problem, Task, Tenant
from migrator.records.runs import held_blocks
from migrator.report.html_page import write_figure
from migrator.report.page import Axis, Lines, Page, Picture, Section, Series, Slices, Use
from migrator.report.paint import HUES, Paint
from migrator.report.slices import planned_slices
from migrator.report.terminal import capitalised

Values = NDArray[np.float64]
"""One value per slot, in requests."""
_WORDS = (
    "Full colours serve, hatched ones retrain, light ones are cold, grey ones are unused. A dashed "
    "line is drawn where a retrained model takes over."
)
_BELOW_ZERO = (
    "Bars below zero are charges: with the charge `paper`, a change of a tenant's instances costs "
    "its whole overhead in the slot of the change. Where the overhead is longer than the slot, the "
    "slot's goodput is negative, and the plan's goodput includes that loss. A charge may reach "
    "below the panel; the table has its value."
)


def draw_plan(problem: Problem, plan: Plan, path: Path) -> None:
    """Draw `plan` as HTML or PNG, by the suffix of `path`; a failure leaves no file behind."""

    def picture() -> Picture:
        charts = plan_charts(problem, plan)
        return Picture(title_of(problem), f"{headline(problem)}; {verdict(plan)}", charts)

    write_figure(path, "--figure", lambda: plan_page(problem, plan), picture)


def plan_page(problem: Problem, plan: Plan) -> Page:
    """The figure as a page."""
    charts = plan_charts(problem, plan)
    paragraphs = [_WORDS]
    if any(isinstance(chart, Lines) and min(chart.y_range or (0.0,)) < 0 for chart in charts):
        paragraphs.append(_BELOW_ZERO)
    section = Section("Instances and requests", "plan", tuple(paragraphs), charts)
    lead = f"{capitalised(verdict(plan))}. {headline(problem)}."
    return Page(title_of(problem), lead, (section,))


def plan_charts(problem: Problem, plan: Plan) -> tuple[Slices | Lines, ...]:
    """The slices, then a panel per tenant, all over the same time."""
    board = plan_slices(problem, plan)
    panels = [tenant_series(problem, plan, board, tenant) for tenant in problem.tenants]
    slot_s = problem.slot_s
    board = replace(
        board,
        linked=True,
        retrained=tuple(
            (tenant.name, tenant.completed * slot_s)
            for tenant in panels
            if tenant.completed is not None
        ),
    )
    return (board, *(_panel(tenant, at % HUES, problem) for at, tenant in enumerate(panels)))


def plan_slices(problem: Problem, plan: Plan, *, cold: bool = True) -> Slices:
    """The instances of a plan on the memory slices; `cold`: with their cold starts."""
    charged = cold and problem.charge is Charge.SURVIVORS
    board, before = problem.board, None
    if problem.initial is not None:
        before = held_blocks([problem.initial.instances], board)
    return planned_slices(
        "Instances on memory slices",
        held_blocks([slot.instances for slot in plan.slots], board),
        board,
        len(plan.slots),
        problem.slot_s,
        [tenant.name for tenant in problem.tenants],
        {tenant.name: tenant.overhead_s if charged else 0.0 for tenant in problem.tenants},
        before,
    )


def title_of(problem: Problem) -> str:
    """For whom and for which board the plan is."""
    *others, last = [tenant.name for tenant in problem.tenants]
    names = f"{', '.join(others)} and {last}" if others else last
    return f"Plan for {names} on {problem.board.name}"


def headline(problem: Problem) -> str:
    """What was planned: board, window, charge."""
    seconds = problem.slots * problem.slot_s
    slots = "1 slot" if problem.slots == 1 else f"{problem.slots} slots"
    return (
        f"{problem.board.name}, {seconds:g} s window ({slots} of {problem.slot_s:g} s), "
        f"charge: {problem.charge}"
    )


def verdict(plan: Plan) -> str:
    """The result: goodput, what is known about its distance from the optimum, and the time."""
    return f"goodput {plan.goodput:,.1f}, {plan.status}, planned in {plan.solve_s:.3g} s"


# Series of a tenant


@dataclass(frozen=True)
class TenantSeries:
    """What one tenant's panel shows."""

    name: str
    arrivals: Values
    """Mean over the scenarios."""
    band: tuple[Values, Values] | None
    """10% and 90% quantiles if there are several scenarios."""
    capability: Values
    """After the charge for reconfigurations."""
    goodput: Values
    completed: int | None
    """The slot from which its retrained accuracy counts."""
    accuracies: tuple[float, float]


def tenant_series(problem: Problem, plan: Plan, board: Slices, tenant: Tenant) -> TenantSeries:
    """The series of one tenant; `board` are the slices of the whole plan with cold starts."""
    received = np.asarray(tenant.received, dtype=np.float64)
    if problem.charge is Charge.SURVIVORS:
        capability = _warm_capability(problem, board, tenant)
    else:
        capability = _charged_capability(problem, plan, tenant)
    retrained = next(
        (retraining for retraining in plan.retrainings if retraining.tenant == tenant.name), None
    )
    completed, after = None, tenant.accuracy_pre
    if retrained is not None:
        completed = retrained.end
        after = tenant.configuration(retrained.configuration).accuracy
    served = np.minimum(received, capability).mean(axis=0)
    low, high = np.quantile(received, (0.1, 0.9), axis=0)
    return TenantSeries(
        name=tenant.name,
        arrivals=received.mean(axis=0),
        band=(low, high) if len(received) > 1 else None,
        capability=capability,
        goodput=served * _accuracy(problem.slots, tenant.accuracy_pre, after, completed),
        completed=completed,
        accuracies=(tenant.accuracy_pre, after),
    )


def _accuracy(slots: int, before: float, after: float, completed: int | None) -> Values:
    accuracy = np.full(slots, before)
    if completed is not None:
        accuracy[completed:] = after
    return accuracy


def _warm_capability(problem: Problem, board: Slices, tenant: Tenant) -> Values:
    """Charge `survivors`: an instance counts for the part of each slot in which it is warm."""
    begins = np.arange(problem.slots) * problem.slot_s
    capability = np.zeros(problem.slots)
    for slab in board.slabs:
        if slab.tenant == tenant.name and slab.use is Use.SERVING:
            ends = np.minimum(begins + problem.slot_s, slab.until_s)
            warm_s = np.clip(ends - np.maximum(begins, slab.from_s), 0.0, None)
            gpcs = int(slab.size.removesuffix("g"))
            capability += warm_s / problem.slot_s * tenant.capability[gpcs]
    return capability


def _charged_capability(problem: Problem, plan: Plan, tenant: Tenant) -> Values:
    """Charge `paper`: overhead x the mean instance is lost in a slot whose multiset is new."""
    capability = np.zeros(problem.slots)
    before = _sizes(problem.initial.instances, tenant) if problem.initial else None
    for slot, allocation in enumerate(plan.slots):
        sizes = _sizes(allocation.instances, tenant)
        whole = sum(tenant.capability[size] for size in sizes)
        capability[slot] = whole
        if before is not None and sizes != before:
            # not clipped at zero: an overhead longer than a slot is charged in full
            capability[slot] -= tenant.overhead_s / problem.slot_s * whole / max(1, len(sizes))
        before = sizes
    return capability


def _sizes(instances: Sequence[Instance], tenant: Tenant) -> list[int]:
    task = Task(tenant.name, Kind.INFERENCE)
    return sorted(instance.gpcs for instance in instances if instance.task == task)


# Panels


def _panel(tenant: TenantSeries, hue: int, problem: Problem) -> Lines:
    series = []
    if tenant.band is not None:
        low, high = tenant.band
        grey = Paint(None, light=True)
        series = [
            Series("arrivals, 10%", tuple(low.tolist()), paint=grey),
            Series("arrivals, 90%", tuple(high.tolist()), paint=grey, filled="arrivals, 10-90%"),
        ]
    series += [
        Series("goodput", tuple(tenant.goodput.tolist()), paint=Paint(hue), area=True),
        Series("capability", tuple(tenant.capability.tolist()), paint=Paint(hue, dark=True)),
        Series("arrivals", tuple(tenant.arrivals.tolist()), paint=Paint(None, dark=True)),
    ]
    slot_s, completed = problem.slot_s, tenant.completed
    shown = panel_range(tenant)
    charge = "; below zero: the charge for a change" if shown[0] < 0 else ""
    return Lines(
        f"{tenant.name}: {_result(tenant, slot_s)}{charge}",
        tuple(slot * slot_s for slot in range(problem.slots)),
        tuple(series),
        Axis("time", "s"),
        Axis("requests per slot"),
        until=problem.slots * slot_s,
        marks=() if completed is None else (completed * slot_s,),
        y_range=shown,
        linked=True,
    )


def _result(tenant: TenantSeries, slot_s: float) -> str:
    goodput, arrivals = float(tenant.goodput.sum()), float(tenant.arrivals.sum())
    share = f" ({goodput / arrivals:.1%})" if arrivals > 0 else ""
    sentence = f"goodput {goodput:,.0f} of {arrivals:,.0f} requests{share}"
    if tenant.completed is None:
        return sentence
    before, after = tenant.accuracies
    return f"{sentence}, accuracy {before:.3g} → {after:.3g} at {tenant.completed * slot_s:g} s"


def panel_range(tenant: TenantSeries) -> tuple[float, float]:
    """The range of the requests axis, chosen by the arrivals.

    A capability far above them, or a charge far below zero, may leave the panel rather than
    flatten everything else.
    """
    arrivals = float(max(tenant.arrivals.max(), tenant.band[1].max() if tenant.band else 0.0))
    tallest = max(arrivals, min(float(tenant.capability.max()), 1.6 * arrivals)) or 1.0
    lowest = min(0.0, float(tenant.goodput.min()))
    return 1.06 * max(lowest, -0.4 * tallest), 1.06 * tallest
