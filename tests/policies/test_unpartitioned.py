"""Unpartitioned: everybody holds everything."""

from support.mps_observation import Seen, observation, percents, retraining, service, shares

from migrator.policies.fixed_shares import Unpartitioned
from migrator.policies.policy import Sharing

POLICY = Unpartitioned()


def test_everybody_has_the_whole_gpu_in_one_process() -> None:
    seen = observation(Seen(service("a"), [5], retraining(10)), Seen(service("b"), [5]))
    decision = POLICY.decide(seen)
    assert percents(decision) == {"a/inference": 100, "b/inference": 100, "a/retraining": 100}
    assert len(shares(decision)) == 3


def test_it_is_asked_at_the_window_start_only() -> None:
    assert POLICY.sharing is Sharing.UNPARTITIONED
    assert POLICY.every_s is None
    assert not POLICY.on_completion
