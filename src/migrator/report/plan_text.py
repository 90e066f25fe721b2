"""A plan as text for a terminal: slices over time, and the figures one asks for first."""

from __future__ import annotations

from migrator.core.instance import Instance, Kind
from migrator.core.placement import find_placement
from migrator.core.plan import Plan
from migrator.core.problem import Problem

COLUMNS = 100


def timeline(problem: Problem, plan: Plan, columns: int = COLUMNS) -> list[str]:
    """One line per memory slice, one letter per stretch of slots: A serves, a retrains."""
    letters = tenant_letters(problem)
    stride = -(-len(plan.slots) // columns)
    shown = plan.slots[::stride]
    rows = []
    for memory_slice in range(problem.board.memory_slices - 1, -1, -1):
        cells = (
            _cell(problem, allocation.instances, memory_slice, letters) for allocation in shown
        )
        rows.append(f"slice {memory_slice} |{''.join(cells)}|")
    return rows


def tenant_letters(problem: Problem) -> dict[str, str]:
    """A letter per tenant, in the order of the problem."""
    return {tenant.name: chr(ord("A") + m) for m, tenant in enumerate(problem.tenants)}


def _cell(
    problem: Problem,
    instances: tuple[Instance, ...],
    memory_slice: int,
    letters: dict[str, str],
) -> str:
    for each in instances:
        placement = find_placement(problem.board, each.start, each.gpcs)
        if placement is None or not placement.mask >> memory_slice & 1 or each.task is None:
            continue
        letter = letters[each.task.tenant]
        return letter if each.task.kind is Kind.INFERENCE else letter.lower()
    return "·"
