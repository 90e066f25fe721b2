"""The finite space a plan moves in, as arrays for the compiled kernels.

A *pattern* is the multiset of sizes one tenant's inference holds in a slot; a *joint pattern*
is one pattern per tenant that fits the board together. Under the `paper` charge nothing else
about inference matters, so there are at most 225 joint patterns on a 7-slice board. The
slices a retraining occupies matter too: they are a bit mask, and `fitting` lists which joint
patterns can still be placed around it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from migrator.core.catalogue import Board, Multiset, find_placement, multisets, placements
from migrator.core.errors import InfeasibleError
from migrator.core.problem import Kind, Problem, Task
from migrator.planning.arrays import Bools, Floats, Ints
from migrator.planning.exact.geometry import Geometry, counts_of, geometry


class SpaceArrays(NamedTuple):
    """The joint patterns and where they fit, as kernels of the search take them."""

    joint: Ints
    """[joint, tenant] -> pattern"""
    fitting: Ints
    """[mask, n]: the joint patterns that fit on the slices the mask leaves free; -1 ends"""
    kept_class: Ints
    """[subset of tenants, joint]: same number where the subset's tenants have same patterns"""
    way_option: Ints
    """[way] -> option. A *way* to retrain is a configuration and a placement, numbered
    configuration x placements + placement; an *option* is a configuration and a size."""
    way_mask: Ints
    """[way]: its slices"""
    way_configuration: Ints
    """[way]"""
    starts: Ints
    """[mask, n]: placements, see Geometry"""


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
        contained: Bools = np.all(sizes[:, None, :] <= sizes[None, :, :], axis=2)
        return contained & ~np.eye(len(sizes), dtype=np.bool_)


def build_space(problem: Problem) -> Space:
    """All joint patterns of the problem's tenants that the empty board can hold."""
    allowed = tuple(
        _allowed(problem.board, tenant.min_gpcs, frozenset(tenant.capability))
        for tenant in problem.tenants
    )
    retrain = tuple(
        frozenset(size for choice in tenant.configurations for size in choice.slots)
        for tenant in problem.tenants
        if problem.may_retrain(tenant)
    )
    space = _space_of(problem.board, allowed, retrain, most_configurations(problem))
    if space is None:
        raise InfeasibleError(
            "tenants: their minimum instances (min_gpcs) cannot be placed on "
            f"{problem.board.name} at the same time; lower min_gpcs or remove a tenant"
        )
    return replace(space, reachable=_reachable(problem))


def most_configurations(problem: Problem) -> int:
    """The most configurations that a tenant has, at least 1."""
    return max(1, *(len(tenant.configurations) for tenant in problem.tenants))


@lru_cache(maxsize=256)
def _allowed(board: Board, min_gpcs: int, sizes: frozenset[int]) -> tuple[Multiset, ...]:
    """Patterns of these sizes with an instance of at least `min_gpcs`."""
    return tuple(p for p in multisets(board) if max(p) >= min_gpcs and sizes.issuperset(p))


@lru_cache(maxsize=64)
def _space_of(
    board: Board,
    allowed: tuple[tuple[Multiset, ...], ...],
    retrain: tuple[frozenset[int], ...],
    configurations: int,
) -> Space | None:
    """The space of these patterns, cached: replanning meets the same tenants every second."""
    geo, index = geometry(board), {multiset: i for i, multiset in enumerate(multisets(board))}
    joints: list[tuple[Multiset, tuple[Multiset, ...]]] = [((), ())]
    for patterns_of_tenant in allowed:
        joints = [
            (union, (*chosen, pattern))
            for held, chosen in joints
            for pattern in patterns_of_tenant
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
    total = np.array([index[multiset] for multiset, _ in joints], np.int64)
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
            way_option=np.concatenate(
                [geo.place_size + c * len(geo.sizes) for c in range(configurations)]
            ),
            way_mask=np.tile(geo.place_mask, configurations),
            way_configuration=np.repeat(np.arange(configurations), len(geo.places)),
            starts=geo.starts,
        ),
        priced=PricedArrays(
            rows=joint + max(map(len, patterns)) * np.arange(len(patterns)),
            fitting=fitting,
            total=total,
            beside_sizes=counts_of(beside_sets, geo.sizes),
        ),
        beside=beside,
        beside_count=np.array([len(multiset) for multiset in beside_sets], np.int64),
    )


def _retraining_beside(
    index: dict[Multiset, int], retrain: tuple[frozenset[int], ...]
) -> tuple[Ints, tuple[Multiset, ...]]:
    """Which sets of retraining sizes fit beside which multiset of inference instances."""
    sizes = frozenset[int]().union(*retrain)
    sets = [
        multiset
        for multiset in index
        if len(multiset) <= len(retrain) and sizes.issuperset(multiset)
    ]
    chosen = ((), *sorted(sets, key=lambda multiset: (len(multiset), multiset)))
    beside = np.array(
        [
            [index.get(tuple(sorted(held + retraining, reverse=True)), -1) for retraining in chosen]
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
            placements_used = [
                find_placement(problem.board, instance.start, instance.gpcs)
                for instance in problem.initial.instances
                if instance.task == task
            ]
            options = [place.mask for place in placements_used if place is not None]
        else:
            in_time = {
                size
                for choice in tenant.configurations
                for size, slots in choice.slots.items()
                if slots <= problem.slots
            }
            options = [place.mask for place in placements(problem.board) if place.gpcs in in_time]
        masks |= {
            mask | placements_used
            for mask in masks
            for placements_used in options
            if not mask & placements_used
        }
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
    for m, patterns_of_tenant in enumerate(patterns):
        counts[m, : len(patterns_of_tenant)] = counts_of(patterns_of_tenant, sizes)
    return counts


def _kept_classes(joint: Ints) -> Ints:
    tenants = joint.shape[1]
    classes = np.zeros((1 << tenants, len(joint)), np.int64)
    for subset in range(1, 1 << tenants):
        chosen = [m for m in range(tenants) if subset >> m & 1]
        classes[subset] = np.unique(joint[:, chosen], axis=0, return_inverse=True)[1].ravel()
    return classes
