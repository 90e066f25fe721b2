"""The finite space a plan moves in, as arrays for the compiled kernels.

A *pattern* is the multiset of sizes one tenant's inference holds in a slot; a *joint pattern*
is one pattern per tenant that fits the board together. Under the `paper` charge nothing else
about inference matters, so there are at most 225 joint patterns on a 7-slice board. The
slices a retraining occupies matter too: they are a bit mask, and `fitting` lists which joint
patterns can still be placed around it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from migrator.core.catalogue import (
    Board,
    Multiset,
    Placement,
    configurations,
    find_placement,
    multiset_of,
    multisets,
    placement_sets,
    placements,
)
from migrator.core.errors import InfeasibleError
from migrator.core.problem import Kind, Problem, Retraining, Task

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


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
    places, sizes, known = placements(board), board.sizes, multisets(board)
    index = {each: i for i, each in enumerate(known)}
    masks = 1 << board.memory_slices
    placeable = np.zeros((masks, len(known)), np.bool_)
    every_mask = np.arange(masks)
    for chosen in placement_sets(board):
        taken = sum(each.mask for each in chosen)
        placeable[(every_mask & taken) == 0, index[multiset_of(chosen)]] = True
    _, first, alike = np.unique(placeable, axis=0, return_index=True, return_inverse=True)
    return Geometry(
        sizes=sizes,
        places=places,
        place_size=np.array([sizes.index(each.gpcs) for each in places], np.int64),
        place_mask=np.array([each.mask for each in places], np.int64),
        placeable=placeable,
        size_counts=_counts(known, sizes),
        configuration_counts=_counts(configurations(board), sizes),
        starts=_start_classes(board),
        alike=first[alike.ravel()],
    )


def _counts(of: tuple[Multiset, ...], sizes: tuple[int, ...]) -> Floats:
    return np.array([[each.count(size) for size in sizes] for each in of], np.float64)


def _start_classes(board: Board) -> Ints:
    """For each occupied mask, one start per class of placements that are interchangeable.

    A permutation of memory slices that maps every placement to a placement of the same size
    is a symmetry of the board: applied to all of the future it changes nothing that counts
    under the `paper` charge. It may be applied only if it leaves occupied slices in place,
    because a running retraining cannot move.
    """
    places, slices = placements(board), board.memory_slices
    index = {(each.mask, each.gpcs): i for i, each in enumerate(places)}
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
    found = []
    for chosen in [(a,) for a in swaps] + list(combinations(swaps, 2)):
        moved = list(range(slices))
        for a, b in chosen:
            moved[a], moved[b] = moved[b], moved[a]
        image = [index.get((_permuted(mask, moved), gpcs), -1) for mask, gpcs in index]
        if -1 not in image:
            touched = sum(1 << at for at, to in enumerate(moved) if at != to)
            found.append((touched, image))
    return found


@lru_cache(maxsize=16)
def symmetries(board: Board) -> Ints:
    """[n, placement]: every rearrangement of the placements that the board allows; none first."""
    places = placements(board)
    index = {(each.mask, each.gpcs): i for i, each in enumerate(places)}
    swaps = [image for _, image in _symmetries(index, board.memory_slices)]
    found = [tuple(range(len(places)))]
    for known in found:  # grows: products of swaps
        for image in swaps:
            both = tuple(image[at] for at in known)
            if both not in found:
                found.append(both)
    return np.array(found, np.int64)


def _permuted(mask: int, moved: list[int]) -> int:
    return sum(1 << to for bit, to in enumerate(moved) if mask >> bit & 1)


class SpaceArrays(NamedTuple):
    """The joint patterns and where they fit, as kernels of the search take them."""

    joint: Ints
    """[joint, tenant] -> pattern"""
    fitting: Ints
    """[mask, n]: the joint patterns that fit on the slices the mask leaves free; -1 ends"""
    kept_class: Ints
    """[subset of tenants, joint]: same number where the subset's tenants have same patterns"""
    place_size: Ints
    place_mask: Ints
    starts: Ints
    """[mask, n]: see Geometry"""


class PricedArrays(NamedTuple):
    """The joint patterns and what can retrain beside them, as kernels of the prices take them."""

    rows: Ints
    """[joint, tenant] -> row of the pattern among the prices of all tenants' patterns"""
    fitting: Ints
    """as in `SpaceArrays`"""
    total: Ints
    """[joint]: the multiset of all its instances, as the board numbers them"""
    beside_sizes: Floats
    """[n, size]: the retraining sets, small ones first; set 0 is empty"""


@dataclass(frozen=True, eq=False)
class Space:
    """The patterns of each tenant and the joint patterns of all of them."""

    geometry: Geometry
    patterns: tuple[tuple[Multiset, ...], ...]
    """per tenant"""
    pattern_sizes: Floats
    """[tenant, pattern, size]: instances of that size in the pattern"""
    reachable: Ints
    """masks that retrainings, running or to be started, can occupy together"""
    most_waiting: int
    """tenants that have a retraining to start"""
    arrays: SpaceArrays
    priced: PricedArrays
    beside: Ints
    """[multiset, n]: both together as a multiset, for the n-th retraining set; -1 if too large"""
    beside_count: Ints
    """[n]: how many tenants the set needs"""

    @property
    def joint(self) -> Ints:
        """[joint, tenant] -> pattern"""
        return self.arrays.joint

    def rooms(self, mask: int, waiting: int) -> Bools:
        """[multiset, retraining set]: which sets `waiting` tenants may retrain beside it.

        Retraining earns, so a set is left out where a larger one fits in its place.
        """
        beside, enough = self.beside, self.beside_count <= waiting
        fits: Bools = (beside >= 0) & enough & self.geometry.placeable[mask][beside]
        covered: Bools = np.matmul(fits, self._contained.T)
        return fits & ~covered

    @cached_property
    def _contained(self) -> Bools:
        """[retraining set, another]: whether the other one contains it."""
        sizes = self.priced.beside_sizes
        found: Bools = np.all(sizes[:, None, :] <= sizes[None, :, :], axis=2)
        return found & ~np.eye(len(sizes), dtype=np.bool_)


def build_space(problem: Problem) -> Space:
    """All joint patterns of the problem's tenants that the empty board can hold."""
    own = tuple(
        _allowed(problem.board, tenant.min_gpcs, frozenset(tenant.capability))
        for tenant in problem.tenants
    )
    retrain = tuple(
        frozenset(tenant.retraining_slots or ())
        for tenant in problem.tenants
        if problem.may_retrain(tenant)
    )
    space = _space_of(problem.board, own, retrain)
    if space is None:
        raise InfeasibleError(
            "tenants: their minimum instances (min_gpcs) cannot be placed on "
            f"{problem.board.name} at the same time; lower min_gpcs or remove a tenant"
        )
    return replace(space, reachable=_reachable(problem))


@lru_cache(maxsize=256)
def _allowed(board: Board, min_gpcs: int, sizes: frozenset[int]) -> tuple[Multiset, ...]:
    """Patterns of these sizes with an instance of at least `min_gpcs`."""
    return tuple(p for p in multisets(board) if max(p) >= min_gpcs and sizes.issuperset(p))


@lru_cache(maxsize=64)
def _space_of(
    board: Board,
    allowed: tuple[tuple[Multiset, ...], ...],
    retrain: tuple[frozenset[int], ...],
) -> Space | None:
    """The space of these patterns, cached: replanning meets the same tenants every second."""
    geo, index = geometry(board), {each: i for i, each in enumerate(multisets(board))}
    joints: list[tuple[Multiset, tuple[Multiset, ...]]] = [((), ())]
    for own in allowed:
        joints = [
            (union, (*chosen, pattern))
            for held, chosen in joints
            for pattern in own
            if (union := tuple(sorted(held + pattern, reverse=True))) in index
        ]
    if not joints:
        return None
    patterns = tuple(
        tuple(sorted({chosen[m] for _, chosen in joints}, reverse=True))
        for m in range(len(allowed))
    )
    joint = np.array(
        [[patterns[m].index(p) for m, p in enumerate(chosen)] for _, chosen in joints], np.int64
    )
    total = np.array([index[each] for each, _ in joints], np.int64)
    beside, beside_sets = _retraining_beside(index, retrain)
    fitting = _listed(geo.placeable[:, total])
    return Space(
        geometry=geo,
        patterns=patterns,
        pattern_sizes=_pattern_sizes(patterns, geo.sizes),
        reachable=np.zeros(1, np.int64),
        most_waiting=len(retrain),
        arrays=SpaceArrays(
            joint=joint,
            fitting=fitting,
            kept_class=_kept_classes(joint),
            place_size=geo.place_size,
            place_mask=geo.place_mask,
            starts=geo.starts,
        ),
        priced=PricedArrays(
            rows=joint + max(map(len, patterns)) * np.arange(len(patterns)),
            fitting=fitting,
            total=total,
            beside_sizes=_counts(beside_sets, geo.sizes),
        ),
        beside=beside,
        beside_count=np.array([len(each) for each in beside_sets], np.int64),
    )


def _retraining_beside(
    index: dict[Multiset, int], retrain: tuple[frozenset[int], ...]
) -> tuple[Ints, tuple[Multiset, ...]]:
    """Which sets of retraining sizes fit beside which multiset of inference instances."""
    sizes = frozenset[int]().union(*retrain)
    sets = [each for each in index if len(each) <= len(retrain) and sizes.issuperset(each)]
    chosen = ((), *sorted(sets, key=lambda each: (len(each), each)))
    beside = np.array(
        [
            [index.get(tuple(sorted(held + each, reverse=True)), -1) for each in chosen]
            for held in index
        ],
        np.int64,
    )
    return beside, chosen


def _reachable(problem: Problem) -> Ints:
    masks = {0}
    for tenant in problem.tenants:
        if problem.slots_left(tenant) is not None and problem.initial is not None:
            task = Task(tenant.name, Kind.RETRAINING)
            own = [
                find_placement(problem.board, each.start, each.gpcs)
                for each in problem.initial.instances
                if each.task == task
            ]
            options = [each.mask for each in own if each is not None]
        elif tenant.retraining_slots is not None:
            options = [
                each.mask
                for each in placements(problem.board)
                if tenant.retraining_slots.get(each.gpcs, problem.slots + 1) <= problem.slots
            ]
        else:
            continue
        masks |= {mask | own for mask in masks for own in options if not mask & own}
    return np.array(sorted(masks), np.int64)


def _listed(fits: Bools) -> Ints:
    """Rows of True positions, each closed by -1: kernels walk them instead of testing all."""
    listed = np.full((fits.shape[0], fits.shape[1] + 1), -1, np.int64)
    for mask, row in enumerate(fits):
        where = np.flatnonzero(row)
        listed[mask, : len(where)] = where
    return listed


def _pattern_sizes(patterns: tuple[tuple[Multiset, ...], ...], sizes: tuple[int, ...]) -> Floats:
    widest = max(map(len, patterns))
    counts = np.zeros((len(patterns), widest, len(sizes)))
    for m, own in enumerate(patterns):
        counts[m, : len(own)] = _counts(own, sizes)
    return counts


def _kept_classes(joint: Ints) -> Ints:
    tenants = joint.shape[1]
    classes = np.zeros((1 << tenants, len(joint)), np.int64)
    for subset in range(1, 1 << tenants):
        chosen = [m for m in range(tenants) if subset >> m & 1]
        classes[subset] = np.unique(joint[:, chosen], axis=0, return_inverse=True)[1].ravel()
    return classes


@dataclass(frozen=True)
class Start:
    """A retraining: placement index, first slot, first slot after it."""

    place: int
    begin: int
    end: int


Schedule = tuple[Start | None, ...]
"""Per tenant; None where nothing retrains."""


def running_of(problem: Problem, space: Space) -> Schedule:
    """The retrainings that are under way at slot 0."""
    running: list[Start | None] = []
    for tenant in problem.tenants:
        left = problem.slots_left(tenant)
        if left is None or problem.initial is None:
            running.append(None)
            continue
        task = Task(tenant.name, Kind.RETRAINING)
        held = next(each for each in problem.initial.instances if each.task == task)
        spots = [(place.start, place.gpcs) for place in space.geometry.places]
        running.append(Start(spots.index((held.start, held.gpcs)), 0, left))
    return tuple(running)


def occupied_by(space: Space, schedule: Schedule, slots: int) -> Ints:
    """[slot]: the slices that the schedule's retrainings occupy, as a mask."""
    masks = np.zeros(slots, np.int64)
    for start in schedule:
        if start is not None:
            masks[start.begin : start.end] |= space.geometry.place_mask[start.place]
    return masks


def retrainings_of(problem: Problem, space: Space, schedule: Schedule) -> tuple[Retraining, ...]:
    """The schedule in the plan's words."""
    return tuple(
        Retraining(tenant.name, start.begin, start.end, space.geometry.places[start.place].gpcs)
        for tenant, start in zip(problem.tenants, schedule, strict=True)
        if start is not None
    )
