"""Ekya: the thief scheduler by hand. A percent serves 10 requests per second."""

from dataclasses import replace

from support.mps_observation import WHOLE, Seen, observation, percents, retraining, service, shares

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
