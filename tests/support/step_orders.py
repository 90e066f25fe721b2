"""Whether any order of steps keeps every tenant served: a search over all of them.

It shares nothing with the executor: a state is the set of all ready instances, and a step removes
any one of them or adds any one that fits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from migrator.core.catalogue import Board, Placement, placements

Units = frozenset[tuple[str, Placement]]


def has_order(
    board: Board, ready: Units, target: Units, blocked: Collection[Placement] = ()
) -> bool:
    """Whether steps lead from the `ready` instances to the `target` ones while every tenant that
    has both keeps one ready.

    Tenants that have only one of the two hinder nobody: their instances leave first or come last.
    """
    kept = {tenant for tenant, _ in ready} & {tenant for tenant, _ in target}
    ready = frozenset(unit for unit in ready if unit[0] in kept)
    target = frozenset(unit for unit in target if unit[0] in kept)
    units = [
        (tenant, place)
        for tenant in sorted(kept)
        for place in placements(board)
        if place.gpcs in {other.gpcs for name, other in ready | target if name == tenant}
        and not any(place.overlaps(other) for other in blocked)
    ]
    bits = {unit: 1 << number for number, unit in enumerate(units)}
    conflicts = {
        bits[unit]: sum(bits[other] for other in units if other[1].overlaps(unit[1]))
        for unit in units
    }
    own = {bits[unit]: sum(bits[other] for other in units if other[0] == unit[0]) for unit in units}
    start, end = (sum(bits[unit] for unit in units) for units in (ready, target))
    return _reaches(start, end, conflicts, own)


def _reaches(start: int, end: int, conflicts: Mapping[int, int], own: Mapping[int, int]) -> bool:
    seen, queue = {start}, deque([start])
    while queue:
        state = queue.popleft()
        if state == end:
            return True
        for bit, conflicting in conflicts.items():
            if state & bit:
                after = state & ~bit
                if not after & own[bit]:
                    continue
            elif state & conflicting:
                continue
            else:
                after = state | bit
            if after not in seen:
                seen.add(after)
                queue.append(after)
    return False
