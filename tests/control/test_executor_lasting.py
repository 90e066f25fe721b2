"""The last that serves a tenant stays until its heir is there, also where others go first."""

from support.executor_stage import Stage, serves, trains

from migrator.control.events import Ready

# as in a window of the live demo: both tenants lose all their places at once
BEFORE = (serves("b", 2, 0), serves("a", 2, 2), serves("a", 2, 4), serves("a", 1, 6))
AFTER = (serves("a", 2, 0), serves("b", 1, 2), trains("b", 1, 3), trains("a", 3, 4))


def test_nobody_is_without_what_serves_where_heirs_can_come_one_after_the_other() -> None:
    stage = Stage()
    stage.follow(0.0, BEFORE)
    stage.held_back = {"warm 1g@2 b", "warm 2g@0 a"}
    stage.follow(5.0, AFTER)
    # b's heir gets the slices of those that a can spare; the last of a waits for b to go
    assert stage.states()["2g@0"] == "ready b"
    assert stage.states()["1g@6"] == "ready a"
    assert stage.states()["1g@2"] == "warming b"
    stage.on(6.0, Ready(serves("b", 1, 2), 1.0))
    assert stage.states()["2g@0"] == "warming a"
    assert stage.states()["1g@6"] == "ready a"
    stage.on(7.0, Ready(serves("a", 2, 0), 1.0))
    assert stage.states() == {
        "2g@0": "ready a",
        "1g@2": "ready b",
        "1g@3": "training b",
        "3g@4": "training a",
    }


def test_where_every_order_leaves_a_gap_it_is_no_longer_than_the_plan_charges() -> None:
    """There is no free place: if one waited for the other, its gap would be twice as long."""
    stage = Stage()
    stage.follow(0.0, (serves("a", 3, 0), serves("b", 3, 4)))
    stage.held_back = {"warm 3g@4 a", "warm 3g@0 b"}
    stage.follow(5.0, (serves("b", 3, 0), serves("a", 3, 4)))
    assert stage.states() == {"3g@0": "warming b", "3g@4": "warming a"}


def test_who_needs_the_compute_slices_of_all_does_not_wait() -> None:
    stage = Stage()
    stage.follow(0.0, (serves("a", 4, 0), serves("b", 3, 4)))
    # 4 + 3 GPCs are all there are: no heir can come while both stay
    stage.follow(5.0, (serves("b", 3, 0), serves("a", 3, 4)))
    assert stage.states() == {"3g@0": "ready b", "3g@4": "ready a"}
