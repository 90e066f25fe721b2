"""A GPU drawn in the terminal: slices, and where another instance would fit."""

from __future__ import annotations

import pytest

from migrator.cli.gpu_verbs import room, slices
from migrator.core.catalogue import Board, Place, board, boards
from migrator.gpu.drivers.base import GpuInstance


def there(*places: Place) -> list[GpuInstance]:
    return [GpuInstance(place, number, f"MIG-{number}") for number, place in enumerate(places)]


def fits(board: Board, profile: str, *places: Place) -> tuple[int, ...]:
    return room(board, there(*places), board.profile(profile))


@pytest.mark.parametrize("name", boards())
def test_on_an_empty_board_every_profile_fits_at_its_starts(name: str) -> None:
    for profile in board(name).profiles:
        assert fits(board(name), profile.name) == tuple(sorted(profile.starts))


def test_what_fits_beside_others() -> None:
    a100 = board("A100-40GB")
    four, media = Place(0, "4g.20gb"), Place(6, "1g.5gb+me")
    assert fits(a100, "3g.20gb", four) == (4,)
    assert fits(a100, "2g.10gb", four, media) == (4,)
    assert fits(a100, "1g.5gb", four, media) == (4, 5)
    assert fits(a100, "1g.5gb+me", four, media) == ()  # one per GPU
    assert fits(a100, "1g.10gb", four, media) == (4,)
    assert fits(a100, "7g.40gb", media) == ()


def test_slices_drawn() -> None:
    drawn = slices(board("A100-40GB"), there(Place(4, "2g.10gb"), Place(6, "1g.5gb")))
    assert drawn.splitlines() == [
        "slice    0       1       2       3       4       5       6       7",
        "      ................................[   2g.10gb    ][1g.5gb]........",
    ]
