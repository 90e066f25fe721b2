"""Equal MPS: the same for every task, a finished retraining's share to its tenant."""

from support.mps_observation import Seen, observation, percents, retraining, service

from migrator.policies.fixed_shares import EqualMps

POLICY = EqualMps()


def test_every_task_has_the_same() -> None:
    seen = observation(*(Seen(service(name), [], retraining(10)) for name in "ab"))
    assert set(percents(POLICY.decide(seen)).values()) == {25}


def test_a_finished_retraining_leaves_its_share_to_its_own_inference() -> None:
    seen = observation(Seen(service("a")), Seen(service("b"), [], retraining(10)), slot=50)
    assert percents(POLICY.decide(seen)) == {
        "a/inference": 50,
        "b/inference": 25,
        "b/retraining": 25,
    }
