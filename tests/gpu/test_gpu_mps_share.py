"""How large an MPS share is."""

from __future__ import annotations

from migrator.core.catalogue import board, boards
from migrator.gpu.drivers.mps import board_like, memory_limit, percentage, safe_sms, share_sms


def test_percentages_are_rounded_up_so_that_mps_gives_all_sms() -> None:
    assert [percentage(sms, 132) for sms in (16, 32, 60, 64, 132)] == [
        "12.2",
        "24.3",
        "45.5",
        "48.5",
        "100",
    ]
    for device in (56, 98, 108, 132, 148):
        for sms in range(1, device + 1):
            assert int(float(percentage(sms, device)) * device / 100 + 1e-9) == sms
    assert percentage(99, 98) == "100"


def test_unpublished_sms_are_a_part_of_the_gpus() -> None:
    kind = board("H20-96GB")
    assert [share_sms(kind, each, 78) for each in kind.plain_profiles.values()] == [
        11,
        22,
        33,
        44,
        78,
    ]
    assert share_sms(board("H200-141GB"), board("H200-141GB").profile("1g.35gb"), 132) == 26


def test_a_memory_limit_is_the_instances_memory() -> None:
    kind = board("A100-40GB")
    assert memory_limit(kind, kind.profile("1g.5gb"), 40960) == "0=4864M"
    kind = board("H20-96GB")
    assert memory_limit(kind, kind.profile("3g.48gb"), 98304) == "0=49152M"


def test_any_gpu_is_divided_like_an_a100_and_never_into_more_than_it_has() -> None:
    for sms in (8, 46, 128):
        for mib in (4096, 24564, 98304):
            kind = board_like("NVIDIA Any", mib, sms)
            assert kind.name == "NVIDIA Any"
            assert kind.sizes == (1, 2, 3, 4, 7)
            assert sum(kind.sms_of(size) for size in (3, 4)) <= sms
            assert 7 * kind.sms_of(1) <= sms
            assert kind.sms_of(7) == sms
            assert len({each.name for each in kind.profiles}) == 5
            starts = [each.starts for each in kind.plain_profiles.values()]
            assert starts == [each.starts for each in boards()["A100-80GB"].plain_profiles.values()]


def test_since_hopper_shares_are_powers_of_two_or_the_whole_gpu() -> None:
    wished = (1, 13, 16, 26, 33, 45, 60, 64, 90, 100, 132)
    given = (2, 16, 16, 32, 32, 32, 64, 64, 64, 132, 132)
    assert tuple(safe_sms("NVIDIA H200", each, 132) for each in wished) == given
    assert safe_sms("NVIDIA GH200 480GB", 60, 132) == safe_sms("NVIDIA B200", 60, 148) == 64


def test_before_hopper_shares_are_as_wished() -> None:
    assert [safe_sms("NVIDIA A100-SXM4-40GB", each, 108) for each in (14, 42, 98)] == [14, 42, 98]
    assert safe_sms("NVIDIA L40S", 0.2, 142) == 1
