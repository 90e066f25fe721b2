"""Placements, placement sets, multisets and configurations of every board, whole."""

from collections import Counter
from itertools import combinations

import pytest

from migrator.core.catalogue import (
    Board,
    board,
    boards,
    configurations,
    find_placement,
    maximal_placement_sets,
    multiset_of,
    multisets,
    placement_sets,
    placements,
)

ALL = list(boards().values())
every_board = pytest.mark.parametrize("board", ALL, ids=lambda board: board.name)


@every_board
def test_counts(board: Board) -> None:
    counts = (
        len(placement_sets(board)),
        len(maximal_placement_sets(board)),
        len(multisets(board)),
        len(configurations(board)),
    )
    expected = {7: (297, 19, 37, 12), 4: (25, 5, 9, 4), 2: (4, 2, 3, 2)}
    assert counts == expected[board.compute_slices]


@every_board
def test_every_subset_of_placements_is_listed_iff_nothing_overlaps(board: Board) -> None:
    listed = {frozenset(chosen) for chosen in placement_sets(board)}
    assert len(listed) == len(placement_sets(board))
    for size in range(1, board.compute_slices + 1):
        for chosen in combinations(placements(board), size):
            slices = [s for p in chosen for s in range(p.start, p.start + p.width)]
            assert (frozenset(chosen) in listed) == (len(slices) == len(set(slices)))


@every_board
def test_slices_imply_the_gpc_limit(board: Board) -> None:
    """The planners reason in memory slices alone; this is why they may."""
    assert all(sum(multiset_of(c)) <= board.compute_slices for c in placement_sets(board))
    assert all(p.gpcs <= board.compute_slices for p in placements(board))


@every_board
def test_configurations_are_the_multisets_in_no_other(board: Board) -> None:
    for multiset in multisets(board):
        inside = [c for c in configurations(board) if Counter(multiset) <= Counter(c)]
        assert inside
        assert (multiset in configurations(board)) == (inside == [multiset])


def test_a_multiset_is_not_enough_for_a_transition() -> None:
    """3g@0, 2g@4, 1g@6 cannot be extended although 3-2-1-1 is feasible."""
    a100 = board("A100-40GB")
    held = [find_placement(a100, 0, 3), find_placement(a100, 4, 2), find_placement(a100, 6, 1)]
    assert (3, 2, 1, 1) in multisets(a100)
    assert all(any(h is not None and p.overlaps(h) for h in held) for p in placements(a100))
