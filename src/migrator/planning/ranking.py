"""Sorting inside kernels."""

from __future__ import annotations

from migrator.planning.arrays import Floats, Ints
from migrator.planning.kernels import compiled_inner


@compiled_inner
def descending(count: int, rank: Floats, order: Ints) -> int:
    """Which row of `order` [2, n] has the numbers below `count`, the largest rank first.

    Equal ones are in their order (merge sort). numba's own stable sort takes two seconds to
    compile.
    """
    for i in range(count):
        order[0, i] = i
    which, length = 0, 1
    while length < count:
        for begin in range(0, count, 2 * length):
            middle, end = min(begin + length, count), min(begin + 2 * length, count)
            left_at, right_at = begin, middle
            for at in range(begin, end):
                if right_at >= end or (
                    left_at < middle and rank[order[which, left_at]] >= rank[order[which, right_at]]
                ):
                    order[1 - which, at] = order[which, left_at]
                    left_at += 1
                else:
                    order[1 - which, at] = order[which, right_at]
                    right_at += 1
        which = 1 - which
        length *= 2
    return which
