"""What a picture of a plan shows, as plain data; the HTML and PNG writers only lay it out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from migrator.core.instance import Kind
from migrator.core.plan import Plan
from migrator.core.problem import Problem
from migrator.report.plan_blocks import Block, blocks_of
from migrator.report.plan_palette import Shade, shades
from migrator.report.plan_series import TenantSeries, tenant_series


class Key(StrEnum):
    """What the legend explains in grey, since it takes every tenant's colour."""

    SERVING = "serving"
    COLD = "cold start"
    RETRAINING = "retraining"
    UNUSED = "unused"
    RETRAINED = "retrained"
    ARRIVALS = "arrivals"
    BAND = "arrivals, 10-90%"
    CAPABILITY = "capability"
    GOODPUT = "goodput"


@dataclass(frozen=True)
class PlanDrawing:
    """Everything to draw; times are slots, `slot_s` seconds each."""

    headline: str
    verdict: str
    slot_s: float
    slots: int
    slices: int
    blocks: tuple[Block, ...]
    tenants: tuple[TenantSeries, ...]
    shades: tuple[Shade, ...]
    """One per tenant, in the same order."""

    @property
    def window_s(self) -> float:
        """The length of the time axis."""
        return self.slots * self.slot_s

    @property
    def has_changes(self) -> bool:
        """Whether some tenant was charged for a change of its multiset."""
        return any(each.changes for each in self.tenants)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of what the picture has, in the order of the legend."""
        tasks = [each.task for each in self.blocks]
        absent = {
            Key.COLD: not any(each.cold_s for each in self.blocks),
            Key.RETRAINING: not any(task and task.kind is Kind.RETRAINING for task in tasks),
            Key.UNUSED: None not in tasks,
            Key.RETRAINED: all(each.completed is None for each in self.tenants),
            Key.BAND: all(each.band is None for each in self.tenants),
        }
        return tuple(key for key in Key if not absent.get(key, False))

    def shade(self, tenant: str) -> Shade:
        """The tones of the tenant called `tenant`."""
        names = [each.name for each in self.tenants]
        return self.shades[names.index(tenant)]


def drawing_of(problem: Problem, plan: Plan) -> PlanDrawing:
    """The picture of `plan`, ready to be laid out."""
    blocks = blocks_of(problem, plan)
    return PlanDrawing(
        headline=headline(problem),
        verdict=verdict(plan),
        slot_s=problem.slot_s,
        slots=problem.slots,
        slices=problem.board.memory_slices,
        blocks=blocks,
        tenants=tuple(tenant_series(problem, plan, blocks, each) for each in problem.tenants),
        shades=shades(len(problem.tenants)),
    )


def headline(problem: Problem) -> str:
    """What was planned: board, window, charge."""
    seconds = problem.slots * problem.slot_s
    slots = "1 slot" if problem.slots == 1 else f"{problem.slots} slots"
    return (
        f"{problem.board.name}, {seconds:g} s window ({slots} of {problem.slot_s:g} s), "
        f"charge: {problem.charge}"
    )


def verdict(plan: Plan) -> str:
    """What came out: goodput, how far from optimal, by which solver, in what time."""
    return (
        f"goodput {plan.goodput:,.1f} ({_gap(plan)}), solver: {plan.solver}, {plan.solve_s:.3g} s"
    )


def _gap(plan: Plan) -> str:
    if not math.isfinite(plan.upper_bound):
        return "no bound known"
    if plan.gap == 0:
        return "proven optimal"
    return f"gap {plan.gap:.2%}" if plan.gap >= 0.0001 else "gap below 0.01%"


def result(series: TenantSeries, slot_s: float) -> str:
    """What a tenant got, in words for its panel."""
    goodput, arrivals = float(series.goodput.sum()), float(series.arrivals.sum())
    share = f" ({goodput / arrivals:.1%})" if arrivals > 0 else ""
    words = f"goodput {goodput:,.0f} of {arrivals:,.0f} requests{share}"
    if series.completed is None:
        return words
    before, after = series.accuracies
    moment = f"{series.completed * slot_s:g} s"
    return f"accuracy {before:.3g} → {after:.3g} at {moment},  {words}"


def panel_range(series: TenantSeries) -> tuple[float, float]:
    """The requests axis of a tenant's panel.

    Led by arrivals: a capability far above them, or a charge far below zero, may leave the
    panel rather than flatten everything else.
    """
    arrivals = float(max(series.arrivals.max(), series.band[1].max() if series.band else 0.0))
    tallest = max(arrivals, min(float(series.capability.max()), 1.6 * arrivals)) or 1.0
    lowest = min(0.0, float(series.goodput.min()))
    return 1.06 * max(lowest, -0.4 * tallest), 1.06 * tallest
