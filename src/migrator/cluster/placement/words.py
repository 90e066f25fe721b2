"""Sentences about a placement: why a tenant has no GPU, and what else is worth saying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.cluster.placement.items import Unit
from migrator.cluster.placement.market import Market
from migrator.cluster.placement.sets import Sets
from migrator.core.cluster import ClusterScenario, Unplaced


def without_gpu(market: Market, units: Sequence[Unit]) -> tuple[Unplaced, ...]:
    """Every tenant of these units, with why it has none and what would help."""
    return tuple(Unplaced(name, _why(market, unit)) for unit in units for name in unit)


def _why(market: Market, unit: Unit) -> str:
    item = next(each for each in market.items if unit in each.units)
    able = [
        board.name
        for board in market.boards
        if all(board.name in market.kinds[kind].views for kind in item.kinds)
    ]
    if not able:
        return "no board here serves all that must be together; take a tenant out of that rule"
    if not any(_fits_alone(sets, market.items.index(item)) for sets in market.sets):
        return (
            f"all that must be together do not fit on one {' or '.join(able)}; take a tenant out "
            "of that rule or lower min_gpcs"
        )
    rule = ", and some tenants must be apart" if item.apart else ""
    return (
        f"every tenant always holds an instance of its own, and no {' or '.join(able)} has room "
        f"for one more of this size{rule}; add a GPU, lower min_gpcs or leave some tenants out"
    )


def _fits_alone(sets: Sets, item: int) -> bool:
    return bool((sets.counts[sets.counts.sum(axis=1) == 1, item] == 1).any())


def notes_on(
    scenario: ClusterScenario,
    names: Mapping[str, Sequence[str]],
    current: Mapping[str, str],
    *,
    merged: bool,
) -> tuple[str, ...]:
    """What the reader of a placement should know."""
    notes = []
    gone = sorted(set(current.values()) - {each.name for each in scenario.gpus})
    if gone:
        lived = sum(home in gone for home in current.values())
        who = "1 tenant" if lived == 1 else f"{lived} tenants"
        notes.append(
            f"{_some(gone)} of the current placement {'is' if len(gone) == 1 else 'are'} not in "
            f"the cluster any more; what lived there ({who}) was placed anew"
        )
    left = sorted(set(current) - {each.name for each in scenario.tenants})
    if left:
        notes.append(f"{_some(left)} of the current placement: there is no such tenant any more")
    empty = sum(not names.get(each.name) for each in scenario.gpus)
    if empty:
        notes.append(f"{empty} {'GPU has' if empty == 1 else 'GPUs have'} no tenants")
    if merged:
        notes.append(
            "there are so many kinds of tenants that near ones were placed alike; the bound is "
            "that of all GPUs pooled"
        )
    return tuple(notes)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
