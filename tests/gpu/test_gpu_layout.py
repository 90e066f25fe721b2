from collections import Counter

import pytest
from support import board_search

from migrator.core.catalogue import Board, boards
from migrator.core.errors import InputError
from migrator.core.placement import Place, all_places, place_mask
from migrator.gpu.partition.layout import Layout, arrangements


@pytest.mark.parametrize("name", ["A30-24GB", "RTX-PRO-6000-Blackwell-96GB"])
def test_every_multiset_is_laid_in_every_way_the_board_allows(name: str) -> None:
    board = boards()[name]
    ways: dict[tuple[tuple[str, int], ...], set[frozenset[Place]]] = {}
    for state in board_search.neighbours(board):
        amounts = Counter(profile for profile, _ in state)
        places = frozenset(Place(start, profile) for profile, start in state)
        ways.setdefault(tuple(sorted(amounts.items())), set()).add(places)
    for amounts_of, expected in ways.items():
        found = [frozenset(each) for each in arrangements(board, Layout(counts=dict(amounts_of)))]
        assert len(found) == len(set(found))
        assert set(found) == expected


def test_given_places_stay_and_counts_come_beside_them() -> None:
    layout = Layout((Place(4, "3g.20gb"),), {"2g.10gb": 1, "1g.5gb": 0})
    assert set(arrangements(boards()["A100-40GB"], layout)) == {
        (Place(4, "3g.20gb"), Place(0, "2g.10gb")),
        (Place(4, "3g.20gb"), Place(2, "2g.10gb")),
    }
    assert layout.amounts == {"3g.20gb": 1, "2g.10gb": 1}


def test_the_empty_layout_is_one_way() -> None:
    assert list(arrangements(boards()["A100-40GB"], Layout())) == [()]


@pytest.mark.parametrize("board", boards().values(), ids=lambda board: board.name)
def test_every_place_is_a_layout_of_its_own(board: Board) -> None:
    for place in all_places(board):
        assert list(arrangements(board, Layout((place,)))) == [(place,)]
        assert place_mask(board, place) < 1 << board.memory_slices
    with pytest.raises(InputError, match="has no MIG profile '9g'"):
        list(arrangements(board, Layout(counts={"9g": 1})))
