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


def test_without_retraining_each_has_its_whole_partition() -> None:
    seen = observation(Seen(service("a"), steady(350)), Seen(service("b"), steady(150)))
    assert percents(POLICY.decide(seen)) == {"a/inference": 40, "b/inference": 60}


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


def test_where_no_sm_is_left_retraining_takes_turns() -> None:
    # 410 of 500 rps on each half: 16.4 of 20 turns, so 17; 3 are left on one of them.
    seen = observation(
        Seen(service("a"), steady(410), retraining(10)), Seen(service("b"), steady(410))
    )
    decision = POLICY.decide(seen)
    assert percents(decision) == {"a/inference": 42.5, "b/inference": 50, "a/retraining": 7.5}


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


def test_the_rate_is_a_moving_average_over_an_epoch() -> None:
    # Of 10 s slots an epoch has 2: weight 2/3 on the last, 2/9 before it. Of 0, 0, 0, 450 rps
    # that is 304: 40. The plan is an epoch old, so two more slots follow.
    history = [0.0] * 20 + [4500.0] + [0.0] * 2
    seen = observation(Seen(service("a"), history, retraining(10)), slot_s=10, slots=20)
    assert percents(POLICY.decide(seen))["a/inference"] == 40


def test_whom_no_share_can_serve_in_time_is_still_served() -> None:
    hopeless = [Seen(service(name, slo_s=1e-6), steady(10), retraining(10)) for name in "abc"]
    decision = POLICY.decide(observation(*hopeless))
    assert percents(decision) == {"a/inference": 25, "b/inference": 50, "c/inference": 25}
