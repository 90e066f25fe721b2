"""A plan as text: a summary, and which tenant holds which slices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from migrator.core.problem import Plan, Problem
from migrator.report.plan_figure import plan_slices
from migrator.report.terminal import tenant_letters, timeline_lines

_COLUMNS = 100
TOLERANCE = 1e-6
"""Relative difference of goodputs that is not worth a line."""


def plan_summary(
    problem: Problem, made: Plan, carried_out: float, short: Mapping[str, float]
) -> list[str]:
    """Goodput, distance to the best plan, and retrainings; one line each.

    `carried_out`: the goodput with gaps in serving that no order of steps avoids. `short`: by
    tenant, the requests that are short of its floor (`planning.check.requests_short`).
    """
    received = sum(
        sum(map(sum, tenant.received)) / len(tenant.received) for tenant in problem.tenants
    )
    share = (
        f", {100 * made.goodput / received:.1f}% of {received:,.0f} requests" if received else ""
    )
    lines = [f"goodput      {made.goodput:,.1f}{share}"]
    if carried_out < made.goodput * (1 - TOLERANCE):
        gaps = "with gaps in serving that no order of steps avoids"
        lines.append(f"carried out  {carried_out:,.1f}, {gaps}")
    if made.later_goodput:
        later = f"{made.later_goodput:,.1f}"
        lines.append(f"afterwards   {later} expected in later windows from retraining")
    if problem.has_preferences:
        lines += _preference_lines(problem, made, short)
    lines.append(f"status       {made.status} (upper bound {made.upper_bound:,.1f})")
    lines.append(f"solver       {made.solver}, {made.solve_s:.2f} s, charge {problem.charge}")
    lines += [
        f"retraining   {retraining.tenant}: slots {retraining.start} to {retraining.end - 1}, "
        f"{retraining.gpcs} GPCs"
        for retraining in made.retrainings
    ]
    retrained = {retraining.tenant for retraining in made.retrainings}
    return lines + [
        f"retraining   {tenant.name}: left out, it costs more goodput than it gains"
        for tenant in problem.tenants
        if problem.may_retrain(tenant) and tenant.name not in retrained
    ]


def _preference_lines(problem: Problem, made: Plan, short: Mapping[str, float]) -> Iterator[str]:
    """The objective, and which floors the plan does not meet."""
    if any(tenant.weight != 1 for tenant in problem.tenants):
        weights = ", ".join(f"{tenant.name} {tenant.weight:g}" for tenant in problem.tenants)
        weighted = made.goodput + made.later_goodput + made.weighting
        yield f"weighted     {weighted:,.1f} (weights {weights})"
    for name, requests in short.items():
        tenant = problem.tenant(name)
        if requests > TOLERANCE:
            least = f"{tenant.floor * tenant.requests:,.1f} requests"
            yield f"floor        {name} is {requests:,.1f} of {least} short of {tenant.floor:.1%}"
        else:
            yield f"floor        {name} answers {tenant.floor:.1%} of its requests in every slot"


def plan_timeline(problem: Problem, made: Plan) -> str:
    """Which tenant holds which slices over the window, as characters."""
    chart = plan_slices(problem, made, cold=False)
    names = ", ".join(f"{letter} {name}" for name, letter in tenant_letters(chart.tenants).items())
    key = f"slices over time ({names}; capital serves, small retrains, - unused, · no instance)"
    return "\n".join([key, *timeline_lines(chart, problem.slot_s, _COLUMNS)])
