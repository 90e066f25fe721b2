"""A board as far as it is ours to divide."""

from __future__ import annotations

import pytest

from migrator.core.catalogue import Place, board, board_without, placements


@pytest.mark.parametrize("place", [Place(0, "4g.20gb"), Place(6, "1g.5gb"), Place(2, "2g.10gb")])
def test_a_board_without_others_has_no_place_that_they_are_in_the_way_of(place: Place) -> None:
    whole = board("A100-40GB")
    taken = range(place.start, place.start + whole.profile(place.profile).memory_slices)
    left = placements(board_without(whole, [place]))
    for placement in placements(whole):
        overlaps = any(
            placement.start <= slot < placement.start + placement.width for slot in taken
        )
        assert (placement in left) == (not overlaps)


def test_a_board_that_is_all_ours_is_the_board_itself() -> None:
    assert board_without(board("A100-40GB"), []) is board("A100-40GB")
