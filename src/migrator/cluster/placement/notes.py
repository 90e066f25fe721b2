"""What a placement says beside its numbers: why tenants have no GPU, and what to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.cluster.placement.items import Unit
from migrator.cluster.placement.problem import PlacementProblem
from migrator.cluster.placement.sets import Sets
from migrator.cluster.scenario import (
    ClusterScenario,
    Unplaced,
    shorten,
)


def explain_unplaced(problem: PlacementProblem, units: Sequence[Unit]) -> tuple[Unplaced, ...]:
    """Return every tenant of these units with the reason and the remedy."""
    return tuple(Unplaced(name, _why(problem, unit)) for unit in units for name in unit)


def _why(problem: PlacementProblem, unit: Unit) -> str:
    item = next(item for item in problem.items if unit in item.units)
    able = [
        board.name
        for board in problem.boards
        if all(board.name in problem.kinds[kind].views for kind in item.kinds)
    ]
    if not able:
        return "no board here can serve all tenants of its together rule; remove one from the rule"
    if not any(_fits_alone(sets, problem.items.index(item)) for sets in problem.sets):
        return (
            f"the tenants of its together rule do not fit on one {' or '.join(able)}; remove one "
            "from the rule or lower min_gpcs"
        )
    rule = ", and some tenants must be apart" if item.apart else ""
    return (
        f"every tenant always needs an instance of its own, and no {' or '.join(able)} has room "
        f"for one more of this size{rule}; add a GPU, lower min_gpcs or leave some tenants out"
    )


def _fits_alone(sets: Sets, item: int) -> bool:
    return bool((sets.counts[sets.counts.sum(axis=1) == 1, item] == 1).any())


def placement_notes(
    scenario: ClusterScenario,
    names: Mapping[str, Sequence[str]],
    current: Mapping[str, str],
    *,
    merged: bool,
) -> tuple[str, ...]:
    """Remarks on a placement."""
    notes = []
    missing = sorted(set(current.values()) - {gpu.name for gpu in scenario.gpus})
    if missing:
        lost, single = sum(home in missing for home in current.values()), len(missing) == 1
        tenants, were = ("1 tenant", "was") if lost == 1 else (f"{lost} tenants", "were")
        notes.append(
            f"{shorten(missing)} of the current placement {'is' if single else 'are'} not in "
            f"the cluster; {tenants} of {'it' if single else 'them'} {were} placed again"
        )
    unknown = sorted(set(current) - {tenant.name for tenant in scenario.tenants})
    if unknown:
        notes.append(f"{shorten(unknown)} of the current placement: not in the scenario")
    empty = sum(not names.get(gpu.name) for gpu in scenario.gpus)
    if empty:
        notes.append(f"{empty} {'GPU has' if empty == 1 else 'GPUs have'} no tenants")
    if merged:
        notes.append(
            "there are many kinds of tenants, so similar ones were placed through cluster "
            "representatives; the bound is that of all GPUs pooled"
        )
    return tuple(notes)
