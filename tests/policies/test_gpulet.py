"""Gpulet by hand: a percent serves 10 requests per second, partitions are p and 100 - p."""

import pytest
from support.mps_observation import Seen, observation, percents, retraining, service, shares

from migrator.policies.gpulet import Gpulet

POLICY = Gpulet()


def steady(rate: float) -> list[float]:
    return [rate] * 200


def test_two_models_two_partitions_and_retrainings_on_what_they_leave() -> None:
    # 350 rps need 35%: 40 of the shares there are, and 60 remain. 150 rps need 20 of those 60.
    seen = observation(
        Seen(service("a"), steady(350), retraining(10)),
        Seen(service("b"), steady(150), retraining(10)),
    )
    assert percents(POLICY.decide(seen)) == {
        "a/inference": 40,
        "b/inference": 20,
        "a/retraining": 20,
        "b/retraining": 20,
    }


def test_the_third_model_takes_turns() -> None:
    # a 600 rps: 60; b 300: the other 40; c 90 fits beside b: b needs 15 of 20 turns on 40%,
    # c 90 / 400 = 4.5, so 5. Nothing is left, no SM and no turn.
    seen = observation(
        Seen(service("a"), steady(600), retraining(10)),
        Seen(service("b"), steady(300)),
        Seen(service("c"), steady(90)),
    )
    decision = POLICY.decide(seen)
    assert percents(decision) == {"a/inference": 60, "b/inference": 30, "c/inference": 10}
    duties = {share.task.tenant: share.duty for share in shares(decision)}
    assert duties == pytest.approx({"a": 1, "b": 0.75, "c": 0.25})


def test_what_does_not_fit_is_lowered_for_all() -> None:
    # 900 and 600 rps on 1000: at 13/20 585 and 390 fit on 60 and 40, at 14/20 630 do not.
    seen = observation(Seen(service("a"), steady(900)), Seen(service("b"), steady(600)))
    assert percents(POLICY.decide(seen)) == {"a/inference": 60, "b/inference": 40}


def test_interference_may_ask_for_the_next_share() -> None:
    # 395 rps fit on 40%. Beside a neighbour that makes it 1.6 times slower on 40% only 250 of
    # them are served, less than 0.85; on 50% 500 / 1.5 = 333, still less than 336; on 60% 429.
    seen = observation(Seen(service("a", interference=64 / 132), steady(395), retraining(10)))
    assert percents(POLICY.decide(seen)) == {"a/inference": 60, "a/retraining": 40}


def test_a_plan_is_an_epoch_old() -> None:
    # What came in the last 20 s, and since the last boundary, is not in it yet: all of the 25 s,
    # or all but 5 s, which weigh 1 - (19/21)^5 = 0.39: 150 + 0.39 x 750 = 445 rps.
    history = steady(150) + [900.0] * 25
    seen = observation(Seen(service("a"), history, retraining(10)), slot=45)
    assert percents(POLICY.decide(seen))["a/inference"] == 20
    seen = observation(Seen(service("a"), history, retraining(10)), slot=40)
    assert percents(POLICY.decide(seen))["a/inference"] == 50
