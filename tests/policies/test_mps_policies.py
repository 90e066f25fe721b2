"""Every MPS policy, whatever it sees: what its decision may never break."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.mps_observation import ANY_SHARE, BOARD, Seen, observation, retraining, service, shares

from migrator.core.problem import Kind, Share, Task
from migrator.core.profiles import Curve, Overhead, Profile, Service
from migrator.core.scenario import PeerLimits, ResizedTraining, ShareSizes
from migrator.policies import mps_workers
from migrator.policies.astraea import Astraea
from migrator.policies.ekya import Ekya
from migrator.policies.fixed_shares import EqualMps, Unpartitioned
from migrator.policies.gpulet import Gpulet
from migrator.policies.infless import Infless
from migrator.policies.policy import Decision, Observation, Policy, Sharing
from migrator.policies.registry import policies

ALL: tuple[Policy, ...] = (
    Ekya(),
    Astraea(),
    Gpulet(),
    Infless(),
    EqualMps(),
    Unpartitioned(),
)

# A few fixed services: a policy's tables are made once per service, as in a run.
MEASURED = Profile(
    model="measured",
    board=BOARD.name,
    latency_ms={
        1: Curve(((16, 1.91), (32, 1.47), (60, 1.28), (64, 1.21))),
        4: Curve(((16, 3.50), (32, 2.32), (60, 1.74), (64, 1.66))),
        16: Curve(((16, 9.30), (32, 5.76), (60, 3.53), (64, 3.32))),
    },
    training_ratio=3.5,
    interference=0.11,
    contention=0.9,
    overhead=Overhead(0.4, 6.0, 1.5),
    provenance="made up",
)
SERVICES = {
    tenant: [
        Service(tenant, MEASURED, 0.02, 1),
        Service(tenant, MEASURED, 0.006, 4),
        Service(tenant, MEASURED, 0.05, 16),
        Service(tenant, MEASURED, 0.0015, 4),
        service(tenant),
        service(tenant, slo_s=1e-5),
    ]
    for tenant in "abcd"
}


UNIT = 100 * 16 / 132
LIMITS = (
    ANY_SHARE,
    PeerLimits(shares=ShareSizes.ANY),
    PeerLimits(),
    PeerLimits(resized_training=ResizedTraining.FREE),
)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    slot_s = draw(st.sampled_from([0.5, 1.0, 2.0, 10.0]))
    slots = round(200 / slot_s)
    names = "abcd"[: draw(st.integers(1, 4))]
    seen, held = [], []
    limits = draw(st.sampled_from(LIMITS))
    least = 5.0 if limits is ANY_SHARE else UNIT
    for name in names:
        rates = st.floats(0, 5000) | st.just(0.0)
        history = draw(st.lists(rates, max_size=8)) * draw(st.integers(1, 40))
        state = draw(st.sampled_from(["none", "waits", "runs"]))
        running = mps_workers.training(
            name, least * draw(st.sampled_from([1, 2] if len(names) < 3 else [1]))
        )
        waits = retraining(draw(st.floats(1, 400)), accuracy_post=draw(st.floats(0, 1)))
        runs = retraining(30, done=draw(st.floats(0, 0.99)), holding=running)
        held += [running] if state == "runs" else []
        number = draw(st.integers(0, 3))
        held += [Share(copy, 2 * least, Task(name, Kind.INFERENCE)) for copy in range(number)]
        seen.append(
            Seen(
                draw(st.sampled_from(SERVICES[name])),
                [rps * slot_s for rps in history],
                {"none": None, "waits": waits, "runs": runs}[state],
                draw(st.floats(0, 15)),
            )
        )
    slot = draw(st.integers(0, slots - 1))
    return observation(
        *seen, slot_s=slot_s, slots=slots, slot=slot, held=tuple(held), limits=limits
    )


def broken(policy: Policy, now: Observation, decision: Decision) -> list[str]:
    """The rules that a decision breaks."""
    held = shares(decision)
    tasks = Counter(share.task for share in held)
    retraining_now = {view.name for view in now.tenants if view.retraining}
    trained = [task for task in tasks.elements() if task.kind is Kind.RETRAINING]
    rules = {
        "one entry": len(decision.slots) == 1,
        "everybody serves": all(tasks[Task(v.name, Kind.INFERENCE)] for v in now.tenants),
        "one share per retraining": len(trained) == len(set(trained)),
        "nothing for no retraining": {task.tenant for task in trained} <= retraining_now,
        "something each": all(share.percent > 0 and 0 < share.duty <= 1 for share in held),
        "at most all": all(share.percent <= 100 for share in held),
        "told apart": len({(share.task, share.number) for share in held}) == len(held),
    }
    if policy.sharing is Sharing.MPS:
        total = sum(share.percent * share.duty for share in held)
        rules["not more than there is"] = total <= 100 + 1e-6
        rules["processes that there may be"] = all(is_allowed(share, now.limits) for share in held)
    return [rule for rule, kept in rules.items() if not kept]


def is_allowed(share: Share, limits: PeerLimits) -> bool:
    if limits.shares is ShareSizes.ANY:
        return share.percent >= limits.least_percent(BOARD) - 1e-6
    sizes = (UNIT, 2 * UNIT, 4 * UNIT, 100.0)
    return any(share.percent == pytest.approx(size) for size in sizes)


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
@settings(max_examples=amount(25, 60), deadline=None)
@given(now=observations())
def test_a_decision_keeps_the_rules_and_is_the_same_again(policy: Policy, now: Observation) -> None:
    decision = policy.decide(now)
    assert broken(policy, now, decision) == []
    assert policy.decide(now) == decision


def test_the_rules_can_be_broken() -> None:
    now = observation(Seen(service("a"), [1], None), Seen(service("b"), [1], None))
    serving = (
        *mps_workers.serving(now.tenants[0].service, BOARD, 60, ANY_SHARE),
        mps_workers.training("b", 50),
    )
    assert broken(Ekya(), now, Decision((serving,))) == [
        "everybody serves",
        "nothing for no retraining",
        "not more than there is",
    ]


def test_they_are_found_by_name() -> None:
    names = {"ekya", "astraea", "gpulet", "infless", "equal-mps", "unpartitioned"}
    assert names <= set(policies())
    assert {policy.name for policy in ALL} == names
