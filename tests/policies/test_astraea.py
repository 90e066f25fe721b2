"""Astraea by hand: a percent serves 10 requests per second, shares come in steps of 5%."""

from support.mps_observation import Seen, observation, percents, retraining, service

from migrator.policies.astraea import Astraea

POLICY = Astraea()


def test_smallest_shares_for_inference_and_the_rest_by_compute() -> None:
    # 220 rps: 22%, rounded up to 25%. 100 rps: 10%. 65% are left, 13 steps, compute 2 : 1. One
    # step each, then to whom has most compute per step: 9 (1/9) before 4 (1/8), so 9 and 4.
    seen = observation(
        Seen(service("a"), [220] * 10, retraining(60)),
        Seen(service("b"), [100] * 10, retraining(30)),
    )
    assert percents(POLICY.decide(seen)) == {
        "a/inference": 25,
        "b/inference": 10,
        "a/retraining": 45,
        "b/retraining": 20,
    }


def test_only_the_last_seconds_are_observed() -> None:
    history = [900.0] * 100 + [300.0] * 10
    seen = observation(Seen(service("a"), history, retraining(60)), slot_s=0.5)
    assert percents(POLICY.decide(seen)) == {"a/inference": 60, "a/retraining": 40}


def test_overload_raises_the_smallest_ratio_of_capacity_to_load() -> None:
    # 1500 and 500 rps on 1000: 75% and 25% give both exactly half. Retraining waits.
    seen = observation(
        Seen(service("a"), [1500] * 5, retraining(60)), Seen(service("b"), [500] * 5)
    )
    assert percents(POLICY.decide(seen)) == {"a/inference": 75, "b/inference": 25}


def test_the_objective_sets_a_least_share() -> None:
    # 1 ms on all SMs is 2.5 ms on 40%, the smallest share within 2.5 ms; 10 rps need no more.
    seen = observation(Seen(service("a", slo_s=0.0025001), [10] * 5, retraining(60)))
    assert percents(POLICY.decide(seen)) == {"a/inference": 40, "a/retraining": 60}


def test_bandwidth_that_others_take_is_expected() -> None:
    # 300 rps need 30% alone. With 16/33 of interference a share p is 1 + (1 - p) times slower:
    # 50% serve 500 / 1.5 = 333, 45% only 450 / 1.55 = 290.
    slowed = service("a", interference=64 / 132)
    seen = observation(Seen(slowed, [300] * 5, retraining(60)))
    assert percents(POLICY.decide(seen))["a/inference"] == 50


def test_without_retraining_inference_has_everything() -> None:
    seen = observation(Seen(service("a"), [300] * 5), Seen(service("b"), [100] * 5))
    assert percents(POLICY.decide(seen)) == {"a/inference": 75, "b/inference": 25}


def test_before_anything_is_seen_tasks_count_alike() -> None:
    seen = observation(*(Seen(service(name), [], retraining(60)) for name in "ab"))
    assert set(percents(POLICY.decide(seen)).values()) == {25}
