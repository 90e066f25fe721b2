"""Checkpoints that pay, and those that do not."""

from migrator.learn.thrift import Thrift


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def written(thrift: Thrift, clock: Clock, seconds: float) -> None:
    began_s = thrift.now_s()
    clock.now_s += seconds
    thrift.wrote(began_s)


def test_small_ones_are_written_every_time() -> None:
    clock = Clock()
    thrift = Thrift(4e6, clock)
    assert thrift.due
    written(thrift, clock, 0.05)
    assert thrift.due


def test_a_large_one_waits_until_it_is_a_small_part_of_the_training() -> None:
    clock = Clock()
    thrift = Thrift(1.2e9, clock)  # about 4 s
    assert not thrift.due
    clock.now_s = 79.0
    assert not thrift.due
    clock.now_s = 81.0
    assert thrift.due


def test_what_one_really_took_counts_from_then_on() -> None:
    clock = Clock()
    thrift = Thrift(0, clock)
    assert thrift.due, "nobody knows what it takes"
    written(thrift, clock, 2.0)
    clock.now_s = 2.0 + 39.0
    assert not thrift.due
    clock.now_s = 2.0 + 41.0
    assert thrift.due
