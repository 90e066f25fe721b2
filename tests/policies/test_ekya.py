"""Ekya: the thief scheduler by hand. A percent serves 10 requests per second."""

from dataclasses import replace

import pytest
from support.mps_observation import (
    WHOLE,
    Seen,
    observation,
    percents,
    retraining,
    service,
    shares,
)

from migrator.control.forecasting_policy import ForecastingPolicy
from migrator.control.observation import policy_named
from migrator.core.profiles import Curve
from migrator.forecast.selection import forecaster
from migrator.policies import mps_workers
from migrator.policies.ekya import Ekya, EkyaByRequests
from migrator.policies.policy import RetrainingChoice

POLICY, BY_REQUESTS = Ekya(), EkyaByRequests()


def other(name: str, whole_s: float, accuracy_post: float) -> RetrainingChoice:
    return RetrainingChoice(name, accuracy_post, Curve(((WHOLE, whole_s),)))


def test_it_alone_estimates_in_every_window() -> None:
    estimated = {
        name
        for name in ("ekya", "ekya-by-requests", "migrator", "equal-mig")
        if ForecastingPolicy(policy_named(name), forecaster("last-mean")).estimates_always
    }
    assert estimated == {"ekya", "ekya-by-requests"}


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


def test_the_short_configuration_is_chosen_where_its_time_is_worth_more_than_its_accuracy() -> None:
    # On 80% the whole retraining takes 75 s, for an average of 0.9 - 0.4 x 75 / 200 = 0.75, and the
    # short one 18.75 s, for 0.8 - 0.3 x 18.75 / 200 = 0.77.
    whole = retraining(60, configuration="all")
    short = other("short", 15, 0.8)
    one = POLICY.decide(observation(Seen(service("a"), [200], whole)))
    assert one.configurations == {"a": "all"}
    several = replace(whole, others=(short, other("nothing", 1, 0.5)))
    decision = POLICY.decide(observation(Seen(service("a"), [200], several)))
    assert decision.configurations == {"a": "short"}
    assert percents(decision) == {"a/inference": 20, "a/retraining": 80}


def test_the_long_configuration_is_chosen_where_it_gains_more() -> None:
    # On 80% they take 12.5 s (0.9 - 0.4 x 12.5 / 200 = 0.875) and 3.1 s (0.795).
    several = retraining(10, configuration="all", others=(other("short", 2.5, 0.8),))
    decision = POLICY.decide(observation(Seen(service("a"), [200], several)))
    assert decision.configurations == {"a": "all"}


def test_only_a_configuration_that_ends_within_the_window_is_chosen() -> None:
    # The whole retraining outlasts the window on any share that inference leaves.
    several = retraining(190, configuration="all", others=(other("short", 60, 0.7),))
    decision = POLICY.decide(observation(Seen(service("a"), [200], several)))
    assert decision.configurations == {"a": "short"}
    assert percents(decision) == {"a/inference": 20, "a/retraining": 80}


def test_every_step_of_the_thief_may_change_the_configuration() -> None:
    # On a third of the GPU the whole retraining takes 150 s (an average of 0.6) and the short one
    # 60 s (0.64); on 83%, stolen from inference that needs little, 60 s (0.78) and 24 s (0.676).
    several = retraining(50, configuration="all", others=(other("short", 20, 0.7),))
    busy = observation(Seen(service("a"), [333], several), Seen(service("b"), [333]))
    assert POLICY.decide(busy).configurations == {"a": "short"}
    idle = observation(Seen(service("a"), [100], several), Seen(service("b"), [10]))
    assert POLICY.decide(idle).configurations == {"a": "all"}


def test_by_requests_the_tenant_with_most_requests_counts_most() -> None:
    # A tenth of the GPU answers 1/11 of the requests of a, and 1/6 of those of b. The mean of both
    # prefers b (0.5 / 6 > 0.6 / 11) until it keeps up; every request counts the same for a model
    # that answers 60% of them right, against 50%.
    seen = observation(Seen(service("a"), [1100]), Seen(service("b"), [600]))
    better, worse = seen.tenants
    seen = replace(seen, tenants=(replace(better, accuracy=0.6), worse))
    assert percents(POLICY.decide(seen)) == {"a/inference": 40, "b/inference": 60}
    assert percents(BY_REQUESTS.decide(seen)) == {"a/inference": 90, "b/inference": 10}


@pytest.mark.parametrize("history", [[], [0.0] * 200])
def test_by_requests_tenants_count_the_same_while_none_have_requests(history: list[float]) -> None:
    seen = observation(Seen(service("a"), history, retraining(60)), Seen(service("b"), history))
    assert BY_REQUESTS.decide(seen) == POLICY.decide(seen)
