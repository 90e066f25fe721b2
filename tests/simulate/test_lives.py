"""Worker processes: what a new allocation keeps, ends and starts, and what that costs."""

import math

import pytest
from support.scenarios import H200, profile, serves, share, trains

from migrator.core.instance import Kind
from migrator.core.service import Service
from migrator.simulate.lives import Costs, MigLives, MpsLives

COSTS = Costs({"a": 2.0, "b": 3.0}, {name: Service(name, profile(), 0.1, 1) for name in "ab"})


def test_the_first_allocation_serves_at_once_but_its_retraining_starts() -> None:
    lives = MigLives(H200, COSTS)
    new = lives.retarget(0.0, (serves("a", 0, 1), trains("a", 4, 3)))
    assert [each.ready_s for each in new] == [0.0, 2.0]


def test_a_survivor_serves_on_and_what_is_new_is_cold_after_the_drain() -> None:
    lives = MigLives(H200, COSTS)
    lives.retarget(0.0, (serves("a", 0, 1), serves("a", 1, 1)))
    new = lives.retarget(5.0, (serves("a", 0, 1), serves("b", 1, 1), serves("b", 2, 1)))
    # what left slice 1 may still need 10 ms for its batch; slice 2 was free
    assert [each.ready_s for each in new] == [pytest.approx(8.01), 8.0]
    survivor, left = lives.everyone[:2]
    assert (survivor.until_s, left.until_s) == (math.inf, 5.0)
    lives.forget(6.0)
    assert left not in lives.everyone


def test_another_place_or_size_is_another_instance() -> None:
    lives = MigLives(H200, COSTS)
    lives.retarget(0.0, (serves("a", 0, 2),))
    assert len(lives.retarget(1.0, (serves("a", 2, 2),))) == 1
    assert len(lives.retarget(2.0, (serves("a", 2, 1),))) == 1
    assert lives.retarget(3.0, (serves("a", 2, 1),)) == []


def test_an_instance_that_trained_serves_its_tenant_at_once() -> None:
    lives = MigLives(H200, COSTS)
    lives.retarget(0.0, (serves("a", 0, 1), trains("a", 4, 3)))
    assert lives.retarget(9.0, (serves("a", 0, 1), serves("a", 4, 3))) == []
    heir = lives.everyone[-1]
    assert (heir.task.kind, heir.since_s, heir.ready_s) == (Kind.INFERENCE, 9.0, 9.0)


def test_a_training_on_an_instance_that_served_has_to_start() -> None:
    lives = MigLives(H200, COSTS)
    lives.retarget(0.0, (serves("a", 0, 1), serves("a", 4, 3)))
    lives.retarget(9.0, (serves("a", 0, 1), trains("a", 4, 3)))
    assert lives.everyone[-1].ready_s == 11.0


def test_an_mps_share_is_replaced_only_when_its_successor_is_warm() -> None:
    lives = MpsLives(H200, COSTS)
    (old,) = lives.retarget(0.0, (share("a", 40.0),))
    (new,) = lives.retarget(5.0, (share("a", 60.0),))
    assert (old.until_s, new.ready_s) == (7.0, 7.0)
    assert new.sms == pytest.approx(0.6 * 132)


def test_a_newer_wish_waits_until_the_last_one_is_there() -> None:
    lives = MpsLives(H200, COSTS)
    lives.retarget(0.0, (share("a", 40.0),))
    lives.retarget(5.0, (share("a", 60.0),))
    assert lives.retarget(6.0, (share("a", 50.0),)) == []
    assert [each.holding for each in lives.retarget(7.0, (share("a", 50.0),))] == [share("a", 50)]


def test_one_more_process_starts_at_once_and_one_that_is_wanted_again_stays() -> None:
    lives = MpsLives(H200, COSTS)
    first, second, third = (share("a", 10.0, number=number) for number in range(3))
    lives.retarget(0.0, (first,))
    assert len(lives.retarget(5.0, (first, second))) == 1
    assert len(lives.retarget(6.0, (first, second, third))) == 1
    lives.retarget(9.0, (second, third, share("a", 20.0)))
    assert lives.everyone[0].until_s == 11.0
    assert lives.retarget(10.0, (first, second, third, share("a", 20.0))) == []
    assert lives.everyone[0].until_s == math.inf


def test_a_task_that_gets_nothing_ends_at_once() -> None:
    lives = MpsLives(H200, COSTS)
    lives.retarget(0.0, (share("a", 40.0), share("a", 30.0, Kind.RETRAINING)))
    lives.retarget(5.0, (share("a", 40.0),))
    assert [each.until_s for each in lives.everyone] == [math.inf, 5.0]
