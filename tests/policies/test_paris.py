"""PARIS by hand: knees of a made-up profile, and the partition of four GPCs."""

from __future__ import annotations

import pytest
from support.mig_views import curve, observation, profile, running, sizes, view, waiting, written

from migrator.core.catalogue import board
from migrator.core.profiles import Service
from migrator.policies.paris import POLICIES, knee, knee_gpcs
from migrator.policies.policy import Routing

STATIC, RECONFIGURING = POLICIES
FLAT_ON_ONE = {
    1: curve({14: 10.0, 28: 10.0, 56: 10.0}),
    4: curve({14: 40.0, 28: 20.0, 56: 10.0}),
}
"""Milliseconds: batches gain nothing on 1g of an A30, something on 2g, everything on 4g."""


def batched(batch: int) -> Service:
    return Service("a", profile(FLAT_ON_ONE), 1.0, batch)


@pytest.mark.parametrize(("sms", "expected"), [(14, 1), (28, 3), (56, 4)])
def test_the_knee_is_where_throughput_levels_off(sms: int, expected: int) -> None:
    """On 28 SMs 2 requests take 13.3 ms, 3 take 16.7: 150 and 180 of at most 200 a second."""
    assert knee(batched(4), sms) == expected


@pytest.mark.parametrize(("batch", "gpcs"), [(1, 1), (2, 2), (3, 2), (4, 4)])
def test_the_smallest_size_whose_knee_is_not_below_the_batch(batch: int, gpcs: int) -> None:
    assert knee_gpcs(batched(batch), board("A30-24GB")) == gpcs


def test_a_batch_beyond_every_knee_takes_the_largest_size() -> None:
    level = {1: FLAT_ON_ONE[1], 4: curve({14: 40.0, 28: 40.0, 56: 40.0})}
    assert knee_gpcs(Service("a", profile(level), 1.0, 4), board("A30-24GB")) == 4


def test_gpcs_follow_the_rates() -> None:
    """At 5 and 15 a second 1g and three 1g leave both twice what they need."""
    tenants = view("a", history=[5.0] * 100), view("b", history=[15.0] * 100)
    decision = STATIC.decide(observation(*tenants, board="A30-24GB"))
    assert [written(slot) for slot in decision.slots] == ["1g@0:b 1g@1:b 1g@2:b 1g@3:a"]


def test_only_the_last_window_counts() -> None:
    tenants = view("a", history=[99.0] * 50 + [5.0] * 100), view("b", history=[15.0] * 100)
    layout = written(STATIC.decide(observation(*tenants, board="A30-24GB")).slots[0])
    assert layout == "1g@0:b 1g@1:b 1g@2:b 1g@3:a"


def test_a_retraining_is_a_task_like_the_others() -> None:
    """A 1g retrains in 71 of 100 s: 1.41; b on two 1g: 1.33. A 2g would leave b 0.67."""
    a = view("a", history=[5.0] * 100, retraining=waiting())
    b = view("b", history=[15.0] * 100)
    layout = sizes(STATIC.decide(observation(a, b, board="A30-24GB")).slots[0])
    assert layout == ["1g:a", "1g:a*", "1g:b", "1g:b"]


def test_a_retraining_that_would_be_late_gets_more() -> None:
    """On 1g it would take 141 of 100 s (0.71), on 2g 81 s (1.23), and a has 20 for 10."""
    a = view("a", history=[10.0] * 100, retraining=waiting(2.0))
    layout = written(STATIC.decide(observation(a, board="A30-24GB")).slots[0])
    assert layout == "2g@0:a* 1g@2:a 1g@3:a"


def test_before_anything_is_seen_tenants_are_alike() -> None:
    layout = sizes(STATIC.decide(observation(view("a"), view("b"), board="A30-24GB")).slots[0])
    assert layout == ["1g:a", "1g:a", "1g:b", "1g:b"]


def test_the_reconfiguring_one_gives_back_what_a_retraining_leaves() -> None:
    a, b = view("a", history=[5.0] * 100), view("b", history=[15.0] * 100)
    seen = observation(a, b, board="A30-24GB", slot=71, held="1g@0:b 1g@1:a* 1g@2:a 1g@3:b")
    assert written(RECONFIGURING.decide(seen).slots[0]) == "1g@0:b 1g@1:b 1g@2:a 1g@3:b"
    assert (STATIC.on_completion, RECONFIGURING.on_completion) == (False, True)


def test_a_running_retraining_stays() -> None:
    a = view("a", history=[5.0] * 100, retraining=running("2g@2:a*", done=0.5))
    b = view("b", history=[15.0] * 100)
    seen = observation(a, b, board="A30-24GB", held="1g@0:a 1g@1:b 2g@2:a*")
    assert written(RECONFIGURING.decide(seen).slots[0]) == "1g@0:a 1g@1:b 2g@2:a*"


def test_requests_are_routed_by_elsa() -> None:
    assert {policy.routing for policy in POLICIES} == {Routing.SLOWEST_FIRST}


def test_the_static_one_keeps_its_partition_while_it_has_a_place_for_everybody() -> None:
    held, without = "3g@0:a 2g@4:b 1g@6:a*", "3g@0:a 2g@4:b"
    a, b = view("a", history=[1.0] * 100, retraining=waiting()), view("b", history=[90.0] * 100)
    assert written(STATIC.decide(observation(a, b, held=held)).slots[0]) == held
    assert written(STATIC.decide(observation(a, b, held=without)).slots[0]) != without
