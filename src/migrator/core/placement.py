"""Where instances can be placed on a board: the only module that computes with memory slices.

An instance occupies consecutive memory slices; two coexist if their slices do not overlap. A
`Placement` has a size that plans use; a `Place` has any MIG profile that a driver can create.
Everything is derived from the catalogue, for any board: placement sets, the maximal ones, the
multisets of their sizes, and the configurations, which are the multisets contained in no other (the
paper's 12 on an A100).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache

from migrator.core.catalogue import Board
from migrator.core.errors import InputError

Multiset = tuple[int, ...]
"""Instance sizes in GPCs, descending: (3, 2, 1, 1)."""


def slice_mask(start: int, width: int) -> int:
    """`width` memory slices from `start` on, as bits."""
    return ((1 << width) - 1) << start


@dataclass(frozen=True, order=True)
class Place:
    """The first memory slice of an instance and the name of its MIG profile."""

    start: int
    profile: str

    def __str__(self) -> str:
        return f"{self.profile} at {self.start}"


def place_mask(board: Board, place: Place) -> int:
    """The memory slices of a place as bits."""
    return slice_mask(place.start, board.profile(place.profile).memory_slices)


def all_places(board: Board) -> Iterator[Place]:
    """Every place on the board, of every MIG profile."""
    return (Place(start, each.name) for each in board.profiles for start in each.starts)


def require_start(board: Board, place: Place) -> None:
    """Raise InputError if the board has no such place."""
    profile = board.profile(place.profile)
    if place.start not in profile.starts:
        raise InputError(
            f"{place.profile} cannot start at {place.start} on {board.name}; it can at "
            f"{', '.join(map(str, sorted(profile.starts)))}"
        )


def conflict(board: Board, present: Collection[Place], place: Place) -> str | None:
    """Why `place` does not fit beside `present`, or None; InputError if the board has no such
    place."""
    require_start(board, place)
    profile = board.profile(place.profile)
    for other in present:
        if place_mask(board, other) & place_mask(board, place):
            return f"it overlaps {other}"
    if (
        sum(board.profile(each.profile).gpcs for each in present) + profile.gpcs
        > board.compute_slices
    ):
        return f"the {board.compute_slices} compute slices of the GPU are not enough for both"
    if sum(each.profile == place.profile for each in present) >= profile.max_instances:
        return f"a {board.name} has at most {profile.max_instances} instances of that profile"
    return None


def board_without(board: Board, places: Collection[Place]) -> Board:
    """The board without the starts whose slices `places` occupy."""
    taken = 0
    for each in places:
        taken |= place_mask(board, each)

    def is_free(start: int, width: int) -> bool:
        return not slice_mask(start, width) & taken

    profiles = tuple(
        replace(each, starts=tuple(s for s in each.starts if is_free(s, each.memory_slices)))
        for each in board.profiles
    )
    return replace(board, profiles=profiles) if places else board


@dataclass(frozen=True, order=True)
class Placement:
    """An instance of `gpcs` GPCs on the memory slices `start` to `start + width - 1`."""

    start: int
    gpcs: int
    width: int

    @property
    def mask(self) -> int:
        """Its memory slices as bits."""
        return slice_mask(self.start, self.width)

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
    """The placement of that size at that start; None if the board has none."""
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
    """The placement sets to which no placement can be added."""
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
    """Every multiset of sizes of a placement set, largest first."""
    return tuple(sorted({multiset_of(each) for each in placement_sets(board)}, reverse=True))


@cache
def configurations(board: Board) -> tuple[Multiset, ...]:
    """The multisets contained in no other: the paper's configurations."""
    counters = {each: Counter(each) for each in multisets(board)}
    return tuple(
        each
        for each, count in counters.items()
        if not any(other != each and count <= counters[other] for other in counters)
    )
