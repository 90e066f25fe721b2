"""Whole runs small enough to follow by hand, and what holds for every run."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.scenarios import (
    Fixed,
    Flat,
    Reacting,
    drift,
    profile,
    scenario,
    serves,
    share,
    tenant,
    trains,
)

from migrator.core.batch import Batch, BatchKind
from migrator.core.catalogue import board
from migrator.core.problem import Charge, Holding, Kind
from migrator.policies.policy import Decision, Observation, Routing, Sharing, Sight
from migrator.policies.registry import policy
from migrator.records.outcome import RunOutcome
from migrator.simulation.run import run


def test_a_run_by_hand() -> None:
    # 10 requests a second, 10 ms each; trains 40 s / 3.75 on 60 SMs, one second to load, 0.5 create
    this = scenario(tenant("a", [10] * 30, drifts=(drift(),)), window_s=30)
    outcome = run(this, Fixed((serves("a", 0, 1), trains("a", 4, 3))), Flat(), spread=0.0)
    (window,) = outcome.windows
    (alone,) = window.tenants
    done_s = 1.5 + 40 * 16 / 60
    assert alone.retrained_s == pytest.approx(done_s)
    assert (alone.accuracy_before, alone.accuracy_after) == (0.5, 0.9)
    assert (outcome.tally.received, outcome.tally.slo_attainment) == (300, 1.0)
    # 12 seconds and a part before the switch, 18 less that part after it
    assert outcome.tally.goodput == pytest.approx(0.5 * 122 + 0.9 * 178, abs=0.4 * 6)
    assert window.reconfigurations == 2


def test_a_tenant_that_moves_is_served_where_it_was_until_it_is_served_elsewhere() -> None:
    this = scenario(tenant("a", [10] * 10))
    moves = Fixed(*[(serves("a", 0, 1),)] * 5, (serves("a", 2, 1),))
    assert run(this, moves, Flat()).tally.in_time == 100


def test_a_slot_without_a_warm_instance_loses_its_requests() -> None:
    this = scenario(tenant("a", [10] * 10))
    grows = Fixed(*[(serves("a", 0, 4),)] * 5, (serves("a", 0, 7),))
    tally = run(this, grows, Flat()).tally
    # no order of steps keeps an instance: the new one serves 1.5 s after the old one has drained
    assert tally.dropped == pytest.approx(14, abs=3)
    assert tally.while_reconfiguring == tally.dropped


def test_instances_of_a_board_of_shares_suffer_their_neighbours() -> None:
    model = profile(100, interference=0.5)
    tenants = [
        tenant(name, [rate] * 10, slo_s=0.25, model=model) for name, rate in (("a", 10), ("b", 40))
    ]
    held = Fixed((serves("a", 4, 1), serves("b", 0, 4)))
    apart = scenario(*tenants)
    beside = replace(apart, board=board("H200-141GB-MPS"))
    in_time = [run(layout, held, Flat()).tally.in_time for layout in (apart, beside)]
    assert in_time[1] < 0.95 * in_time[0]


class Lending(Fixed):
    lends = True


def test_idle_slices_are_lent_to_a_tenant_with_too_many_requests() -> None:
    model = replace(profile(100), memory_mib={1: 500.0})
    # a worker answers ten requests a second; four of five are idle, and standbys start in 1 s
    tenants = [
        tenant(name, [rate] * 10, slo_s=0.25, model=model) for name, rate in (("a", 40), ("b", 0))
    ]
    this = replace(scenario(*tenants), board=board("H200-141GB-MPS"))
    slots = (serves("a", 0, 1), *(serves("b", start, 1) for start in range(1, 5)))
    batches: list[Batch] = []
    kept, lent = (
        run(this, kind(slots), Flat(), batches=batches.append).tally for kind in (Fixed, Lending)
    )
    assert kept.in_time == pytest.approx(100, rel=0.1)
    assert lent.in_time > 300, lent
    assert sum(batch.in_time for batch in batches) == kept.in_time + lent.in_time
    assert {batch.place for batch in batches if batch.kind is BatchKind.OWN} == {"1g@0"}
    borrowed = [batch for batch in batches if batch.kind is BatchKind.LENT]
    assert {batch.place for batch in borrowed} == {"1g@1", "1g@2", "1g@3", "1g@4"}
    assert all(batch.came_s <= batch.taken_s < batch.answered_s for batch in batches)
    assert lent == run(this, Lending(slots), Flat()).tally
    apart = replace(this, board=board("H200-141GB"))
    assert run(apart, Lending(slots), Flat()).tally == run(apart, Fixed(slots), Flat()).tally


def test_mps_shares_are_replaced_without_an_outage_and_suffer_their_neighbours() -> None:
    model = profile(interference=0.5)
    this = scenario(
        tenant("a", [10] * 10, model=model, slo_s=0.012), tenant("b", [0] * 10, drifts=(drift(),))
    )
    alone = Fixed(*[(share("a", 12.2), share("b", 10))] * 5, (share("a", 24.4), share("b", 10)))
    alone.sharing = Sharing.MPS
    assert run(this, alone, Flat()).tally.in_time == 100
    beside = Fixed((share("a", 12.2), share("b", 10), share("b", 48.5, Kind.RETRAINING)))
    beside.sharing = Sharing.MPS
    tally = run(this, beside, Flat()).tally
    # the training is warm after a second, then 10 ms become 15: late, and dropped once it is known
    assert tally.late == pytest.approx(10, abs=2)
    assert tally.dropped == pytest.approx(80, abs=2)


def test_a_policy_is_asked_when_it_wants_to_be() -> None:
    this = scenario(tenant("a", [10] * 20, drifts=(drift(seconds=4),) * 2), windows=2)
    often = Fixed((serves("a", 0, 1), trains("a", 4, 3)), every_s=4)
    run(this, often, Flat())
    assert [observation.slot for observation in often.seen] == [0, 4, 8, 0, 4, 8]

    def answer(_: Observation) -> Decision:
        return Decision(((serves("a", 0, 1), trains("a", 4, 3)),))

    completion = Reacting(answer)
    run(this, completion, Flat())
    # 1.5 s to start, 4 x 16 / 60 of work: it ends within slot 2, and the policy is asked at once
    assert [observation.slot for observation in completion.seen] == [0, 2, 0, 2]


def test_what_a_policy_sees() -> None:
    this = scenario(
        tenant("a", list(range(30)), drifts=(drift(seconds=1000),), offset_s=10), windows=2
    )
    policy = Fixed((serves("a", 0, 1), trains("a", 4, 3)))
    run(this, policy, Flat(), spread=0.0)
    first, second = (observation.tenants[0] for observation in policy.seen)
    assert first.history.tolist() == list(range(10))
    assert first.ahead is not None
    assert first.ahead.tolist() == [list(range(10, 20))]
    assert first.retraining is not None
    assert (first.retraining.holding, first.overhead_s) == (None, 1.5)
    assert second.history.tolist() == list(range(20))
    assert second.retraining is not None
    assert second.retraining.holding == trains("a", 4, 3)
    assert second.retraining.done == pytest.approx((10 - 1.5) / (1000 * 16 / 60))
    assert policy.seen[1].held == policy.slots[0]


def test_a_training_process_of_the_window_before_is_not_a_running_retraining() -> None:
    this = scenario(tenant("a", [1] * 20, drifts=(drift(seconds=1),) * 2), windows=2)
    policy = Fixed((serves("a", 0, 1), trains("a", 4, 3)))
    run(this, policy, Flat())
    again = policy.seen[1].tenants[0].retraining
    assert again is not None
    assert again.holding is None


@st.composite
def allocations(draw: st.DrawFn) -> tuple[Holding, ...]:
    owners = draw(st.lists(st.sampled_from(["a", "b", None]), min_size=4, max_size=4))
    held = [serves(owner, start, 1) for start, owner in enumerate(owners) if owner]
    if draw(st.booleans()):
        held.append(trains(draw(st.sampled_from(["a", "b"])), 4, 3))
    return tuple(held)


@settings(max_examples=amount(30, 60), deadline=None)
@pytest.mark.filterwarnings("ignore::migrator.core.errors.PolicyWarning")
@given(
    slots=st.lists(allocations(), min_size=1, max_size=8),
    counts=st.lists(st.integers(0, 150), min_size=20, max_size=20),
    batch=st.integers(1, 4),
    routing=st.sampled_from(list(Routing)),
    drawn=st.booleans(),
)
def test_nothing_is_lost_and_a_seed_gives_one_result(
    slots: list[tuple[Holding, ...]],
    counts: list[int],
    batch: int,
    routing: Routing,
    drawn: bool,
) -> None:
    this = scenario(
        tenant("a", counts, drifts=(drift(), drift()), batch=batch),
        tenant("b", counts[::-1], slo_s=0.05),
        windows=2,
    )
    policy = Fixed(*slots, routing=routing)
    outcome, again = (run(this, policy, Flat(), drawn=drawn) for _ in range(2))
    tally = outcome.tally
    assert tally.received == 2 * sum(counts)
    assert tally.balance == pytest.approx(0, abs=1e-6)
    assert tally.queued >= 0
    assert tally.while_reconfiguring <= tally.late + tally.dropped
    assert [window.tenants for window in outcome.windows] == [
        window.tenants for window in again.windows
    ]
    if drawn:
        assert tally.goodput == int(tally.goodput)


def test_drawn_and_expected_correctness_agree_on_average() -> None:
    this = scenario(tenant("a", [80] * 100, drifts=(drift(0.7),), slo_s=1.0), window_s=100)
    policy = Fixed((serves("a", 0, 1),))
    expected, drawn = (
        run(this, policy, Flat(), drawn=drawn_each).tally for drawn_each in (False, True)
    )
    assert expected.accuracy == pytest.approx(0.7)
    assert drawn.accuracy == pytest.approx(0.7, abs=3 * np.sqrt(0.21 / 8000))


@pytest.mark.parametrize(
    ("sight", "told"), [(Sight.NOTHING, 0.7), (Sight.FORECAST, 0.7), (Sight.TRUTH, 0.9)]
)
def test_a_policy_is_told_the_estimate_and_only_an_oracle_what_will_come(
    sight: Sight, told: float
) -> None:
    estimated = replace(drift(), accuracy_estimated=0.7)
    this = scenario(tenant("a", [10] * 30, drifts=(estimated,)), window_s=30)
    chosen = Fixed((serves("a", 0, 1), trains("a", 4, 3)))
    chosen.sight = sight
    (window,) = run(this, chosen, Flat()).windows
    seen = chosen.seen[0].tenants[0].retraining
    assert seen is not None
    assert seen.accuracy_post == told
    assert window.tenants[0].accuracy_after == 0.9


def test_retrainings_take_longer_or_shorter_than_their_profile_alike_for_every_policy() -> None:
    this = scenario(tenant("a", [10] * 90, drifts=(drift(),) * 3), window_s=30, windows=3)
    wide = Fixed((serves("a", 0, 1), trains("a", 4, 3)))
    narrow = Fixed((serves("a", 0, 2), trains("a", 4, 3)))
    ends = [
        [window.tenants[0].retrained_s for window in run(this, policy, Flat(), spread=0.2).windows]
        for policy in (wide, wide, narrow)
    ]
    assert ends[0] == ends[1] == ends[2]
    assert len(set(ends[0])) == 3


def test_retrainings_may_be_longer_than_anybody_knows() -> None:
    this = scenario(tenant("a", [10] * 30, drifts=(drift(),)), window_s=30)
    layout = (serves("a", 0, 1), trains("a", 4, 3))
    (window,) = run(this, Fixed(layout), Flat(), spread=0.0, longer=1.25).windows
    assert window.tenants[0].retrained_s == pytest.approx(1.5 + 1.25 * 40 * 16 / 60)


def test_batches_may_be_longer_than_profiled() -> None:
    this = scenario(tenant("a", [150] * 10))  # of 10 ms each: one worker answers 100 a second
    layout = Fixed((serves("a", 0, 1),))
    in_time = [run(this, layout, Flat(), slower=slower).tally.in_time for slower in (1.0, 2.0)]
    assert in_time[1] == pytest.approx(in_time[0] / 2, rel=0.05)


def estimated_run(
    seconds: float, *, estimates: bool, rps: int = 10, trains_first: bool = False
) -> tuple[Fixed, RunOutcome]:
    """Two windows of 40 s, each with something to learn; `seconds`: of the second retraining."""
    drifts = (drift(), replace(drift(seconds=seconds), accuracy_estimated=0.7))
    this = scenario(
        tenant("a", [rps] * 80, drifts=drifts, model=profile(contention=1.0)),
        window_s=40,
        windows=2,
    )
    chosen = Fixed((serves("a", 0, 1), *([trains("a", 4, 3)] if trains_first else [])))
    chosen.sight, chosen.estimates = Sight.NOTHING, estimates
    return chosen, run(this, chosen, Flat(), spread=0.0)


def expected_in_second_window(chosen: Fixed) -> float:
    seen = chosen.seen[1].tenants[0].retraining
    assert seen is not None
    return seen.accuracy_post


def test_an_estimate_that_ends_in_time_is_planned_with() -> None:
    chosen, _ = estimated_run(40.0, estimates=True)
    assert expected_in_second_window(chosen) == 0.7
    # 8.4% of 200 s and the start do not fit into the 13 s before the window ends
    chosen, _ = estimated_run(200.0, estimates=True)
    assert expected_in_second_window(chosen) == 0.9, "the estimate before stands"


@pytest.mark.parametrize("estimates", [True, False])
def test_the_gain_of_a_retraining_is_expected_of_the_next(estimates: bool) -> None:
    """Nothing is estimated after it."""
    chosen, outcome = estimated_run(40.0, estimates=estimates, trains_first=True)
    (first,) = outcome.windows[0].tenants
    removed = (first.accuracy_after - first.accuracy_before) / (1 - first.accuracy_before)
    assert removed > 0
    accuracy = chosen.seen[1].tenants[0].accuracy
    expected = accuracy + removed * (1 - accuracy)
    assert expected_in_second_window(chosen) == pytest.approx(expected)


def test_estimating_slows_the_instance_down_and_costs_requests_under_load() -> None:
    _, without = estimated_run(40.0, estimates=False, rps=90)
    _, estimated = estimated_run(40.0, estimates=True, rps=90)
    first, second = estimated.windows
    assert first.tally.in_time < without.windows[0].tally.in_time
    # an estimate of 3.4 s beside busy serving takes 1.65 times as long, at 39% of the rate
    lost = without.windows[0].tally.in_time - first.tally.in_time
    assert lost == pytest.approx(90 * 3.36 * 1.65 * 0.61, rel=0.25)
    # nothing follows the second window
    assert second.tally == without.windows[1].tally


def test_a_destroyed_instance_ends_the_estimate_on_it() -> None:
    drifts = (drift(), replace(drift(), accuracy_estimated=0.7))
    this = scenario(tenant("a", [10] * 80, drifts=drifts), window_s=40, windows=2)
    # the estimate begins 14 s before the end, and needs 3.4 s
    moves = Fixed(*[(serves("a", 0, 1),)] * 27, (serves("a", 2, 1),))
    moves.sight = Sight.NOTHING
    run(this, moves, Flat(), spread=0.0)
    assert expected_in_second_window(moves) == 0.9, "the estimate before stands"


def test_a_window_lists_the_gap_of_every_plan() -> None:
    this = scenario(tenant("a", [10] * 20, drifts=(drift(),)), window_s=20)
    (once,) = run(this, policy("migrator-once"), Flat()).windows
    (again,) = run(this, policy("migrator-replanned"), Flat()).windows
    assert [(plan.slot, plan.charge) for plan in once.plans] == [(0, Charge.SURVIVORS)]
    assert once.plans[0].gap >= 0
    # it plans once it has seen requests; inference planned again every second has no gap
    assert again.plans[0] == replace(once.plans[0], slot=1)
    assert len(again.plans) < 5
    assert all(plan.slot > 0 for plan in again.plans[1:])
    assert run(this, Fixed((serves("a", 0, 1),)), Flat()).windows[0].plans == ()
