"""INFless by hand: a process of 10% takes 100 requests per second."""

from support.mps_observation import BOARD, Seen, observation, percents, retraining, service, shares

from migrator.core.problem import Kind, Share, Task
from migrator.core.profiles import Curve, Profile, Service
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


def test_a_process_that_was_needed_lately_lingers() -> None:
    held = (process(0, 30), process(1, 10))
    for history, stay in (([390, 0, 0, 0, 0], held), ([390, 0, 0, 0, 0, 0], held[1:])):
        decision = POLICY.decide(observation(Seen(service("a"), history), held=held))
        assert shares(decision) == list(stay)


def test_when_short_who_has_least_of_its_rate_comes_first() -> None:
    # 10% each; then b until 30% (3/9), a (2/4), b until 50% (5/9), a (3/4), b until 70% (7/9).
    seen = observation(Seen(service("a"), [400]), Seen(service("b"), [900]))
    assert percents(POLICY.decide(seen)) == {"a/inference": 30, "b/inference": 70}


def test_a_batch_needs_enough_requests_to_fill_it() -> None:
    # On 10% a batch of 4 takes 20 ms of 60 ms: up to 200 rps, from 4 / 0.04 = 100 rps on; one
    # request 10 ms: up to 100 rps. On 50% one request takes 5 ms: less per percent.
    model = Profile(
        model="batched",
        board=BOARD.name,
        latency_ms={
            1: Curve(((13.2, 10.0), (66.0, 5.0))),
            4: Curve(((13.2, 20.0), (66.0, 10.0))),
        },
        training_ratio=3.0,
        interference=0.0,
        contention=1.0,
        overhead=service("a").profile.overhead,
        provenance="made up",
    )
    batched = Service("a", model, 0.06, 4)
    assert percents(POLICY.decide(observation(Seen(batched, [390])))) == {"a/inference": 20}
    assert percents(POLICY.decide(observation(Seen(batched, [410])))) == {"a/inference": 30}
