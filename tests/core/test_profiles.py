"""The packaged profiles: what was measured is there, and what follows from it is derived right."""

from __future__ import annotations

import pytest

from migrator.core.errors import InputError
from migrator.core.profiles import on_board, profile, profiles

MODELS = ["mobilenet-v2", "resnet-50", "inception-v3", "convnext-b", "vit-b-16", "bert-base"]
H200 = "H200-141GB"


def test_six_models_on_one_board_at_three_batches() -> None:
    assert list(profiles()) == [(model, H200) for model in MODELS]
    for each in profiles().values():
        assert sorted(each.latency_ms) == [1, 4, 16]


@pytest.mark.parametrize(
    ("model", "batch", "sms", "ms"),
    [
        ("mobilenet-v2", 1, 16, 0.83),
        ("resnet-50", 4, 60, 1.74),
        ("inception-v3", 16, 32, 10.6),
        ("convnext-b", 4, 16, 8.82),
        ("vit-b-16", 1, 64, 0.73),
        ("bert-base", 16, 64, 4.76),
    ],
)
def test_measured_points_are_given_back(model: str, batch: int, sms: int, ms: float) -> None:
    assert profile(model, H200).latency_s(batch, sms) == pytest.approx(ms / 1e3)


@pytest.mark.parametrize("model", MODELS)
def test_more_sms_are_never_slower_and_larger_batches_never_slower_per_request(model: str) -> None:
    known = profile(model, H200)
    for batch, curve in known.latency_ms.items():
        at = [curve.at(sms) for sms in (8, 16, 26, 32, 60, 64, 98, 132)]
        assert at == sorted(at, reverse=True), batch
    for sms in (16, 32, 60, 64, 132):
        each = [known.latency_s(batch, sms) / batch for batch in (1, 4, 16)]
        assert each == sorted(each, reverse=True), sms


def test_interference_is_the_measured_slowdown_and_else_their_mean() -> None:
    measured = {"resnet-50": 1.95 / 1.76, "convnext-b": 3.59 / 3.24, "vit-b-16": 1.44 / 1.14}
    mean = sum(measured.values()) / 3
    for model in MODELS:
        expected = measured.get(model, mean) - 1
        assert profile(model, H200).interference == pytest.approx(expected, abs=1e-3)
        assumed = "interference assumed" in profile(model, H200).provenance
        assert assumed is (model not in measured)


def test_contention_is_what_resnet_lost_without_partitions() -> None:
    alone = profile("resnet-50", H200).latency_ms[4].at(132)
    for each in profiles().values():
        assert each.contention == pytest.approx(3.43 / alone - 1, abs=0.01)


def test_a_prepared_start_costs_a_fraction_of_a_cold_one() -> None:
    for each in profiles().values():
        assert 10 < each.overhead.total_s(mig=True, prepared=False) < 14.6
        assert 1.1 < each.overhead.total_s(mig=True, prepared=True) < 3.9


def test_retraining_takes_four_inferences_of_every_sample() -> None:
    seconds = profile("resnet-50", H200).training_s(10_000)
    assert seconds.at(16) == pytest.approx(10_000 * 4 * 9.30e-3 / 16)


def test_on_another_board_a_profile_says_that_it_is_an_approximation() -> None:
    here, there = profile("bert-base", H200), profile("bert-base", "A100-40GB")
    assert there.board == "A100-40GB"
    assert there.latency_s(1, 14) == here.latency_s(1, 14)
    assert there.provenance == f"{here.provenance}; used on A100-40GB by its number of SMs, " + (
        "an approximation"
    )
    assert on_board(here, H200) is here


def test_an_unknown_model_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"^model: there is no 'resnet50'; did you mean resnet-50"):
        profile("resnet50", H200)
    with pytest.raises(InputError, match="there are mobilenet-v2, resnet-50, "):
        profile("zzz", H200)
