"""INFless by hand: a process of 10% takes 100 requests per second."""

from support.mps_observation import Seen, observation, percents, retraining, service, shares

from migrator.core.problem import Kind, Share, Task
from migrator.policies.infless import Infless

POLICY = Infless()


def process(number: int, percent: float, tenant: str = "a") -> Share:
    return Share(number, percent, Task(tenant, Kind.INFERENCE))


def test_processes_are_added_until_the_rate_is_covered_and_retraining_has_the_rest() -> None:
    # 250 rps: three processes of 10%; 0 rps: one; 60% left for two retrainings.
    seen = observation(
        Seen(service("a"), [250] * 5, retraining(10)), Seen(service("b"), [0], retraining(10))
    )
    decision = POLICY.decide(seen)
    assert percents(decision) == {
        "a/inference": 30,
        "b/inference": 10,
        "a/retraining": 30,
        "b/retraining": 30,
    }
    assert [share for share in shares(decision) if share.task.tenant == "a"][:3] == [
        process(0, 10),
        process(1, 10),
        process(2, 10),
    ]


def test_what_runs_stays_and_only_the_residue_is_added() -> None:
    held = (process(1, 20), process(2, 10))
    decision = POLICY.decide(observation(Seen(service("a"), [350]), held=held))
    assert shares(decision) == [*held, process(0, 10)]


def test_below_the_load_factor_processes_are_drained_that_the_others_can_do_without() -> None:
    # 30 + 10% take 400; least 1 each. 330 rps are above 2 + 0.8 x 398 = 320.4: all stay. 310 are
    # below, but without the smaller one 300 would not do. 290 will: the first of equals that the
    # others can do without goes, and without the larger one 100 would not do.
    held = (process(0, 30), process(1, 10))
    for rate, stay in ((330, held), (310, held), (290, held[:1])):
        decision = POLICY.decide(observation(Seen(service("a"), [rate]), held=held))
        assert shares(decision) == list(stay)


def test_when_short_who_has_least_of_its_rate_comes_first() -> None:
    # 10% each; then b until 30% (3/9), a (2/4), b until 50% (5/9), a (3/4), b until 70% (7/9).
    seen = observation(Seen(service("a"), [400]), Seen(service("b"), [900]))
    assert percents(POLICY.decide(seen)) == {"a/inference": 30, "b/inference": 70}
