"""The packaged boards, what the catalogue says of each profile, and boards that others share."""

import pytest

from migrator.core.catalogue import Board, Place, board, board_without, boards, placements
from migrator.core.errors import InputError

ALL = list(boards().values())


@pytest.mark.parametrize("gpu", ALL, ids=lambda gpu: gpu.name)
def test_every_profile_is_consistent(gpu: Board) -> None:
    for profile in gpu.profiles:
        assert 1 <= profile.gpcs <= gpu.compute_slices
        assert profile.starts == tuple(sorted(set(profile.starts)))
        assert all(0 <= s <= gpu.memory_slices - profile.memory_slices for s in profile.starts)
        assert profile.memory_gib is None or profile.memory_gib > 0
        assert profile.sms is None or profile.sms > 0
    assert len({profile.name for profile in gpu.profiles}) == len(gpu.profiles)


@pytest.mark.parametrize("gpu", ALL, ids=lambda gpu: gpu.name)
def test_plans_use_one_plain_profile_per_size(gpu: Board) -> None:
    plain = gpu.plain_profiles
    assert gpu.sizes == {7: (1, 2, 3, 4, 7), 4: (1, 2, 4), 2: (1, 2)}[gpu.compute_slices]
    assert all("+" not in p.name and "-" not in p.name for p in plain.values())
    assert plain[1].memory_slices == 1


def test_unfind_board_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="A100-40GB"):
        board("a100-40")


def test_mps_divides_an_h200_into_eight_slices_that_begin_anywhere() -> None:
    shares = board("H200-141GB-MPS")
    assert shares.is_of_shares
    assert not board("H200-141GB").is_of_shares
    assert (shares.compute_slices, shares.memory_slices, shares.sms) == (8, 8, 132)
    assert [(size, shares.sms_of(size)) for size in shares.sizes] == [
        (1, 16),
        (2, 32),
        (4, 64),
        (8, 132),
    ]
    assert shares.plain_profiles[4].starts == (0, 1, 2, 3, 4)
    assert shares.memory_mib_of(8) == board("H200-141GB").memory_mib_of(7)
    assert board("H200-141GB-MPS") is shares


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("A100-40GB-MPS", "no more slices than A100-40GB"),
        ("H20O-141GB-MPS", "H200-141GB"),
        ("H200-141GB-MPS-MPS", "unknown"),
    ],
)
def test_boards_that_mps_does_not_divide_otherwise_are_refused(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        board(name)


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
