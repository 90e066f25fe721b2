"""Ekya: the thief scheduler by hand. A percent serves 10 requests per second."""

import pytest
from support.mps_observation import Seen, observation, percents, retraining, service, shares

from migrator.control.forecasting_policy import ForecastingPolicy
from migrator.control.observation import policy_named
from migrator.forecast.selection import forecaster
from migrator.policies import mps_workers
from migrator.policies.ekya import Ekya

POLICY = Ekya()


def test_it_alone_estimates_in_every_window() -> None:
    estimated = {
        name
        for name in ("ekya", "migrator", "equal-mig")
        if ForecastingPolicy(policy_named(name), forecaster("last-mean")).estimates_always
    }
    assert estimated == {"ekya"}


def test_inference_that_lacks_steals_from_inference_that_does_not() -> None:
    # From 50/50: 700 rps need 70%, so a steals 10% twice (5/7, 6/7, 7/7 kept up with), and the
    # third time gains nothing. b at 100 rps keeps up with 10% already.
    seen = observation(Seen(service("a"), [700]), Seen(service("b"), [100]))
    assert percents(POLICY.decide(seen)) == {"a/inference": 70, "b/inference": 30}


def test_retraining_steals_what_inference_can_spare() -> None:
    # One tenant, 200 rps: inference keeps up from 20% on. From 50/50 retraining (60 s on 100%)
    # takes 120 s; on 60% 100 s, on 70% 85.7 s, on 80% 75 s: each raises the average. On 90%
    # inference would keep up with half, 0.5 x (0.5 x 66.7 + 0.9 x 133.3) / 200 < 0.75.
    seen = observation(Seen(service("a"), [200], retraining(60)))
    assert percents(POLICY.decide(seen)) == {"a/inference": 20, "a/retraining": 80}


def test_retraining_that_outlasts_the_window_waits_and_inference_has_its_share() -> None:
    # 190 s on the whole GPU: inference always keeps something, so it never fits.
    seen = observation(Seen(service("a"), [200], retraining(190)))
    assert percents(POLICY.decide(seen)) == {"a/inference": 100}


def test_the_start_of_the_process_counts() -> None:
    # 60 s of work take 120 s on 50%, which inference at 500 rps does not give away: with a start
    # of 20 s the average is 0.5 x 0.7 + 0.9 x 0.3 = 0.62, with one of 90 s the window is over.
    fits = Seen(service("a"), [500], retraining(60), overhead_s=20)
    assert percents(POLICY.decide(observation(fits))) == {"a/inference": 50, "a/retraining": 50}
    late = Seen(service("a"), [500], retraining(60), overhead_s=90)
    assert percents(POLICY.decide(observation(late))) == {"a/inference": 100}


def test_a_running_retraining_keeps_its_share() -> None:
    running = mps_workers.training("a", 35.0)
    seen = observation(
        Seen(service("a"), [300], retraining(60, done=0.2, holding=running)),
        Seen(service("b"), [350]),
        slot=50,
    )
    decision = POLICY.decide(seen)
    assert running in shares(decision)
    assert percents(decision) == {"a/inference": 32.5, "b/inference": 32.5, "a/retraining": 35}


@pytest.mark.parametrize("history", [[1000.0] * 200 + [0.0] * 200, []])
def test_only_the_last_window_counts_and_nothing_seen_needs_an_equal_share(
    history: list[float],
) -> None:
    # Idle in the last window, or unknown: b gives nothing away and needs nothing more.
    seen = observation(Seen(service("a"), [400] * 200), Seen(service("b"), history))
    assert percents(POLICY.decide(seen)) == {"a/inference": 50, "b/inference": 50}


def test_retraining_that_makes_it_worse_is_not_started() -> None:
    worse = retraining(10, accuracy_now=0.8, accuracy_post=0.7)
    seen = observation(Seen(service("a"), [200], worse))
    assert percents(POLICY.decide(seen)) == {"a/inference": 100}
