"""What the board rents out in a slot at given prices, when positions are left aside.

A *share* is a joint serving pattern with the instances beside it that retrain or wait to be warm.
`find_shares` finds the one that earns most at given prices, in every slot.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from migrator.core.catalogue import Board, Multiset, multisets
from migrator.core.problem import Problem
from migrator.planning.arrays import Bools, Floats, Ints
from migrator.planning.exact.geometry import geometry
from migrator.planning.exact.space import Space
from migrator.planning.exact.tables import NEVER
from migrator.planning.kernels import compiled
from migrator.planning.survivors.serving import serving_patterns

WAITING, RETRAINING = 0, 1
"""Kinds of instances beside those that serve."""


class Shares(NamedTuple):
    """What the board can rent out in a slot: joint serving patterns, and what fits beside them.

    Beside the instances that serve there are sets that retrain and sets that wait to be warm.
    Every tenant holds an instance of its min_gpcs; where none of its serving pattern is large
    enough, one of the waiting ones must be. Multisets are numbered as the board does, plus 1; 0
    is the empty one.
    """

    joint: Ints
    """[joint, tenant] -> serving pattern"""
    base: Ints
    """[joint] -> its base: all that tells what may be rented out beside it"""
    bases: Ints
    """[base, 2]: (multiset of all instances that serve, minima still needed)"""
    union: Ints
    """[multiset, multiset]: both together; -1 if too large for the board"""
    has_minima: Bools
    """[minima needed, multiset]"""
    sizes: Floats
    """[multiset, size]"""
    retraining: Ints
    """[n]: the multisets that can retrain at the same time; the empty one first"""
    placeable: Bools
    """[mask, multiset]"""


def build_shares(problem: Problem, space: Space) -> Shares:
    """What the problem's board can rent out."""
    patterns = tuple(serving_patterns(space, m) for m in range(len(problem.tenants)))
    minima = tuple(tenant.min_gpcs for tenant in problem.tenants)
    retraining = tuple(map(tuple, space.priced.beside_sizes.astype(int).tolist()))
    return _shares_of(problem.board, patterns, minima, retraining)


@lru_cache(maxsize=64)
def _shares_of(
    board: Board,
    patterns_of: tuple[tuple[Multiset, ...], ...],
    minima: tuple[int, ...],
    retraining: tuple[tuple[int, ...], ...],
) -> Shares:
    geo = geometry(board)
    all_multisets: tuple[Multiset, ...] = ((), *multisets(board))
    index = {multiset: i for i, multiset in enumerate(all_multisets)}
    joints: list[tuple[Multiset, tuple[int, ...], tuple[int, ...]]] = [((), (), ())]
    for patterns, least in zip(patterns_of, minima, strict=True):
        joints = [
            (union, (*chosen, p), needed if any(k >= least for k in pattern) else (*needed, least))
            for held, chosen, needed in joints
            for p, pattern in enumerate(patterns)
            if (union := tuple(sorted(held + pattern, reverse=True))) in index
        ]
    needs: dict[tuple[int, ...], int] = {}
    bases: dict[tuple[int, int], int] = {}
    numbers = []
    for held, _, needed in joints:
        need = needs.setdefault(tuple(sorted(needed, reverse=True)), len(needs))
        numbers.append(bases.setdefault((index[held], need), len(bases)))
    sizes = np.array(
        [[multiset.count(k) for k in geo.sizes] for multiset in all_multisets], np.float64
    )
    return Shares(
        joint=np.array([chosen for _, chosen, _ in joints], np.int64),
        base=np.array(numbers, np.int64),
        bases=np.array(list(bases), np.int64),
        union=np.array(
            [
                [index.get(tuple(sorted(a + b, reverse=True)), -1) for b in all_multisets]
                for a in all_multisets
            ],
            np.int64,
        ),
        has_minima=np.array(
            [[_has(multiset, need) for multiset in all_multisets] for need in needs], np.bool_
        ),
        sizes=sizes,
        retraining=np.array(
            [int((sizes == multiset).all(axis=1).argmax()) for multiset in retraining], np.int64
        ),
        placeable=np.concatenate([np.ones((len(geo.placeable), 1), np.bool_), geo.placeable], 1),
    )


def _has(held: Multiset, needed: tuple[int, ...]) -> bool:
    """Whether there is an instance for each of the minima (both in descending order)."""
    return len(held) >= len(needed) and all(a >= b for a, b in zip(held, needed, strict=False))


class Extras(NamedTuple):
    """What fits beside a mask of occupied slices.

    A case is a multiset that serves or retrains, with the minima still needed.
    """

    waiting: Ints
    """[n, 2]: (case, multiset that waits), those of a case together"""
    retraining: Ints
    """[n, 3]: (base, multiset that retrains, case of both), those of a base together"""
    fitting: Ints
    """[n]: the joint patterns that fit"""


def extras_beside(shares: Shares, mask: int, most: int) -> Extras:
    """What fits beside `mask` when at most `most` tenants retrain."""
    needs, sets = shares.has_minima.shape
    able = shares.retraining[shares.sizes[shares.retraining].sum(axis=1) <= most]
    held = shares.union[shares.bases[:, :1], able]
    base, which = np.nonzero((held >= 0) & shares.placeable[mask, held])
    cases = held[base, which] * needs + shares.bases[base, 1]
    wanted = np.unique(cases)
    waiting = np.empty((len(wanted) * sets, 2), np.int64)
    listed = _list_waiting(
        wanted, shares.union, shares.placeable[mask], shares.has_minima, shares.sizes, waiting
    )
    waiting = waiting[:listed].copy()
    retraining = np.stack([base, able[which], cases], axis=1)
    retraining = retraining[np.isin(cases, waiting[:, 0])]
    fitting = np.flatnonzero(np.isin(shares.base, retraining[:, 0]))
    return Extras(waiting, retraining, fitting)


@compiled
def _list_waiting(
    cases: Ints, union: Ints, placeable: Bools, has_minima: Bools, sizes: Floats, waiting: Ints
) -> int:
    """List what can wait in each case; waiting earns, so only sets that no other one contains."""
    needs, listed = has_minima.shape[0], 0
    for n in range(cases.shape[0]):
        held, need, first_of_case = cases[n] // needs, cases[n] % needs, listed
        for w in range(sizes.shape[0]):
            both = union[held, w]
            if both < 0 or not placeable[both] or not has_minima[need, w]:
                continue
            contained, i = False, first_of_case
            while i < listed and not contained:
                other, more, less = waiting[i, 1], 0, 0
                for k in range(sizes.shape[1]):
                    more += 1 if sizes[w, k] > sizes[other, k] else 0
                    less += 1 if sizes[w, k] < sizes[other, k] else 0
                contained = more == 0
                if (
                    not contained and less == 0
                ):  # it contains the listed one: the last takes its place
                    listed -= 1
                    waiting[i, 0], waiting[i, 1] = waiting[listed, 0], waiting[listed, 1]
                else:
                    i += 1
            if not contained:
                waiting[listed, 0], waiting[listed, 1] = cases[n], w
                listed += 1
    return listed


class BestShares(NamedTuple):
    """What earns most in every slot, and numbers on the way to it."""

    rent: Floats
    """[slot]: what it earns"""
    chosen: Ints
    """[slot, 3]: (joint pattern, what retrains, what waits)"""
    earns: Floats
    """[WAITING or RETRAINING, multiset]"""
    of_case: Floats
    """[2, case]: (the most that can wait earns, that multiset)"""
    of_base: Floats
    """[3, base]: (the most that extra instances earn, what retrains, what waits)"""


def empty_best_shares(shares: Shares, slots: int) -> BestShares:
    """Room for the shares of all slots."""
    return BestShares(
        rent=np.empty(slots),
        chosen=np.empty((slots, 3), np.int64),
        earns=np.empty((2, len(shares.sizes))),
        of_case=np.empty((2, shares.has_minima.size)),
        of_base=np.zeros((3, len(shares.bases))),
    )


@compiled
def find_shares(
    begin: int,
    end: int,
    shares: Shares,
    extras: Extras,
    pattern: Floats,
    beside: Floats,
    best: BestShares,
) -> None:
    """Find what earns most in every slot from `begin` to `end`: `rent` and `chosen`.

    pattern [tenant, slot, serving pattern], beside [WAITING or RETRAINING, slot, size]: prices.
    """
    waiting, retraining, fitting = extras.waiting, extras.retraining, extras.fitting
    earns, of_case, of_base, chosen = best.earns, best.of_case, best.of_base, best.chosen
    sizes, base_of = shares.sizes, shares.base
    for t in range(begin, end):
        for kind in range(2):
            for multiset in range(sizes.shape[0]):
                earned = 0.0
                for k in range(sizes.shape[1]):
                    earned += sizes[multiset, k] * beside[kind, t, k]
                earns[kind, multiset] = earned
        # the best that can wait, by case; then the best that retrains with it, by base
        last = -1
        for i in range(waiting.shape[0]):
            case, waits = waiting[i, 0], waiting[i, 1]
            if case != last or earns[WAITING, waits] > of_case[0, case]:
                of_case[0, case], of_case[1, case] = earns[WAITING, waits], waits
                last = case
        last = -1
        for i in range(retraining.shape[0]):
            base, retrained, case = retraining[i, 0], retraining[i, 1], retraining[i, 2]
            earned = earns[RETRAINING, retrained] + of_case[0, case]
            if base != last or earned > of_base[0, base]:
                of_base[0, base], of_base[1, base] = earned, retrained
                of_base[2, base] = of_case[1, case]
                last = base
        most, joint = NEVER, 0
        for i in range(fitting.shape[0]):
            j = fitting[i]
            earned = of_base[0, base_of[j]]
            for m in range(pattern.shape[0]):
                earned += pattern[m, t, shares.joint[j, m]]
            if earned > most:
                most, joint = earned, j
        base = base_of[joint]
        best.rent[t], chosen[t, 0] = most, joint
        chosen[t, 1], chosen[t, 2] = of_base[1, base], of_base[2, base]
