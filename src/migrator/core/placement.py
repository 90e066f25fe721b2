"""Where instances can sit on a board: placements, sets of them, and what follows.

A placement occupies consecutive memory slices; two instances coexist when their slices do
not overlap. Everything here is derived from the catalogue, for any board: placement sets,
the maximal ones, the multisets of sizes they realise, and the configurations, which are the
multisets contained in no other (the paper's 12 on an A100).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache

from migrator.core.catalogue import Board

Multiset = tuple[int, ...]
"""Instance sizes in GPCs, descending: (3, 2, 1, 1)."""


@dataclass(frozen=True, order=True)
class Placement:
    """An instance of `gpcs` GPCs on the memory slices `start` to `start + width - 1`."""

    start: int
    gpcs: int
    width: int

    @property
    def mask(self) -> int:
        """Its memory slices as bits."""
        return ((1 << self.width) - 1) << self.start

    def overlaps(self, other: Placement) -> bool:
        """Whether the two cannot coexist."""
        return bool(self.mask & other.mask)


PlacementSet = tuple[Placement, ...]


@cache
def placements(board: Board) -> tuple[Placement, ...]:
    """Every placement of the board's plain sizes, by size and start."""
    return tuple(
        Placement(start, gpcs, profile.memory_slices)
        for gpcs, profile in board.plain_profiles.items()
        for start in sorted(profile.starts)
    )


def find_placement(board: Board, start: int, gpcs: int) -> Placement | None:
    """The placement of that size at that start, or None where the board has none."""
    for each in placements(board):
        if each.start == start and each.gpcs == gpcs:
            return each
    return None


@cache
def placement_sets(board: Board) -> tuple[PlacementSet, ...]:
    """Every non-empty set of placements that can exist at once."""
    found: list[PlacementSet] = []

    def extend(chosen: PlacementSet, mask: int, candidates: tuple[Placement, ...]) -> None:
        for index, candidate in enumerate(candidates):
            if candidate.mask & mask:
                continue
            bigger = (*chosen, candidate)
            if sum(each.gpcs for each in bigger) > board.compute_slices:
                continue
            found.append(bigger)
            extend(bigger, mask | candidate.mask, candidates[index + 1 :])

    extend((), 0, placements(board))
    return tuple(found)


@cache
def maximal_placement_sets(board: Board) -> tuple[PlacementSet, ...]:
    """The placement sets to which nothing can be added."""
    everything = placement_sets(board)
    as_sets = [frozenset(each) for each in everything]
    return tuple(
        each
        for each, this in zip(everything, as_sets, strict=True)
        if not any(this < other for other in as_sets)
    )


def multiset_of(chosen: PlacementSet) -> Multiset:
    """The sizes of a placement set, descending."""
    return tuple(sorted((each.gpcs for each in chosen), reverse=True))


@cache
def multisets(board: Board) -> tuple[Multiset, ...]:
    """Every multiset of sizes that some placement set realises, largest first."""
    return tuple(sorted({multiset_of(each) for each in placement_sets(board)}, reverse=True))


@cache
def configurations(board: Board) -> tuple[Multiset, ...]:
    """The multisets contained in no other one: the paper's configurations."""
    counters = {each: Counter(each) for each in multisets(board)}
    return tuple(
        each
        for each, count in counters.items()
        if not any(other != each and count <= counters[other] for other in counters)
    )
