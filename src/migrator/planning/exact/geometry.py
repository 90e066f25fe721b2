"""What a board allows, as arrays indexed by the mask of the slices that retrainings occupy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations

import numpy as np

from migrator.core.catalogue import (
    Board,
    Multiset,
    Placement,
    configurations,
    multiset_of,
    multisets,
    placement_sets,
    placements,
)
from migrator.planning.arrays import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Geometry:
    """What the board allows, indexed by occupied-slice mask."""

    sizes: tuple[int, ...]
    places: tuple[Placement, ...]
    place_size: Ints
    """placement -> index of its size"""
    place_mask: Ints
    placeable: Bools
    """[mask, multiset]: the multiset can be placed on the slices the mask leaves free"""
    size_counts: Floats
    """[multiset, size]"""
    configuration_counts: Floats
    """[configuration, size]"""
    starts: Ints
    """[mask, n]: placements at which a retraining may start, one of each symmetry class; -1 ends"""
    alike: Ints
    """[mask]: the first mask that leaves room for the same multisets"""


@cache
def geometry(board: Board) -> Geometry:
    """The board's geometry, derived once."""
    places, sizes, all_multisets = placements(board), board.sizes, multisets(board)
    index = {multiset: i for i, multiset in enumerate(all_multisets)}
    masks = 1 << board.memory_slices
    placeable = np.zeros((masks, len(all_multisets)), np.bool_)
    every_mask = np.arange(masks)
    for chosen in placement_sets(board):
        taken = sum(place.mask for place in chosen)
        placeable[(every_mask & taken) == 0, index[multiset_of(chosen)]] = True
    _, first_alike, alike = np.unique(placeable, axis=0, return_index=True, return_inverse=True)
    return Geometry(
        sizes=sizes,
        places=places,
        place_size=np.array([sizes.index(place.gpcs) for place in places], np.int64),
        place_mask=np.array([place.mask for place in places], np.int64),
        placeable=placeable,
        size_counts=counts_of(all_multisets, sizes),
        configuration_counts=counts_of(configurations(board), sizes),
        starts=_start_classes(board),
        alike=first_alike[alike.ravel()],
    )


def counts_of(of: tuple[Multiset, ...], sizes: tuple[int, ...]) -> Floats:
    """[multiset, size]: how many instances of the size it has."""
    return np.array([[multiset.count(size) for size in sizes] for multiset in of], np.float64)


def _start_classes(board: Board) -> Ints:
    """For each occupied mask, one start per class of placements that are interchangeable.

    A permutation of memory slices that maps every placement to a placement of the same size
    is a symmetry of the board: applied to all of the future it changes nothing that counts
    under the `paper` charge. It may be applied only if it leaves occupied slices in place,
    because a running retraining cannot move.
    """
    places, slices = placements(board), board.memory_slices
    index = {(place.mask, place.gpcs): i for i, place in enumerate(places)}
    symmetries = _symmetries(index, slices)
    # high starts first: they leave the larger placements at the low end free
    order = sorted(range(len(places)), key=lambda i: (places[i].gpcs, -places[i].start))
    starts = np.full((1 << slices, len(places) + 1), -1, np.int64)
    for mask in range(1 << slices):
        usable = [image for touched, image in symmetries if not touched & mask]
        seen: set[int] = set()
        tried = []
        for i in order:
            if places[i].mask & mask or i in seen:
                continue
            tried.append(i)
            orbit = [i]
            while orbit:
                here = orbit.pop()
                seen.add(here)
                orbit += [image[here] for image in usable if image[here] not in seen]
        starts[mask, : len(tried)] = tried
    return starts


def _symmetries(index: dict[tuple[int, int], int], slices: int) -> list[tuple[int, list[int]]]:
    """Slice permutations of one or two swaps that map placements onto placements.

    Each as (the slices it moves, the image of every placement).
    """
    swaps = list(combinations(range(slices), 2))
    symmetric = []
    for chosen in [(a,) for a in swaps] + list(combinations(swaps, 2)):
        moved = list(range(slices))
        for a, b in chosen:
            moved[a], moved[b] = moved[b], moved[a]
        image = [index.get((_permuted(mask, moved), gpcs), -1) for mask, gpcs in index]
        if -1 not in image:
            touched = sum(1 << at for at, to in enumerate(moved) if at != to)
            symmetric.append((touched, image))
    return symmetric


@lru_cache(maxsize=16)
def symmetries(board: Board) -> Ints:
    """[n, placement]: every rearrangement of the placements that the board allows; none first."""
    places = placements(board)
    index = {(place.mask, place.gpcs): i for i, place in enumerate(places)}
    swaps = [image for _, image in _symmetries(index, board.memory_slices)]
    rearrangements = [tuple(range(len(places)))]
    for earlier in rearrangements:  # grows: products of swaps
        for image in swaps:
            both = tuple(image[at] for at in earlier)
            if both not in rearrangements:
                rearrangements.append(both)
    return np.array(rearrangements, np.int64)


def _permuted(mask: int, moved: list[int]) -> int:
    return sum(1 << to for bit, to in enumerate(moved) if mask >> bit & 1)
