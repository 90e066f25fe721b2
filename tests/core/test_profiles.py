"""The packaged profiles: what was measured is there, and what follows from it is derived right."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from migrator.core.errors import InputError
from migrator.core.profiles import on_board, profile

MODELS = ["mobilenet-v2", "resnet-50", "inception-v3", "convnext-b", "vit-b-16", "bert-base"]
H200 = "H200-141GB"
MIG_SMS = (16, 32, 60, 64, 132)
PUBLISHED = ["efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"]
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "h200-profiles.json"


@pytest.mark.parametrize("model", [*MODELS, *PUBLISHED])
def test_more_sms_are_never_slower_and_larger_batches_never_slower_per_request(model: str) -> None:
    packaged = profile(model, H200)
    for batch, curve in packaged.latency_ms.items():
        at = [curve.at(sms) for sms in (8, 16, 26, 32, 60, 64, 98, 132)]
        # two measurements of one share differ by up to 3%
        assert all(more <= 1.035 * fewer for fewer, more in pairwise(at)), batch
    for sms in (16, 32, 60, 64, 132):
        per_request = [packaged.latency_s(batch, sms) / batch for batch in (1, 4, 16)]
        assert per_request == sorted(per_request, reverse=True), sms


def _measured() -> list[dict[str, Any]]:
    measured = json.loads(RESULTS.read_text(encoding="utf-8"))["profiles"]
    assert len(measured) == len(MODELS)
    return list(measured)


def test_the_packaged_profiles_are_what_was_measured() -> None:
    for measured in _measured():
        packaged = profile(measured["model"], H200)
        for batch, by_sms in measured["latency_ms"].items():
            assert tuple(map(int, by_sms)) == MIG_SMS
            for sms, ms in by_sms.items():
                assert packaged.latency_ms[int(batch)].at(int(sms)) == pytest.approx(ms)


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
