"""Workers that wait on the slices of other tenants, on boards of MPS shares."""

import pytest
from support.executor_stage import Stage

from migrator.control.events import Discard, Prepared
from migrator.control.memory import GpuMemory
from migrator.control.standbys import RETRY_S, Standbys
from migrator.control.units import Site
from migrator.core.catalogue import board
from migrator.core.problem import Instance, Kind, Task

SHARES = board("H200-141GB-MPS")


def serves(tenant: str, start: int, gpcs: int = 4) -> Instance:
    return Instance(start, gpcs, Task(tenant, Kind.INFERENCE))


def trains(tenant: str, start: int, gpcs: int = 4) -> Instance:
    return Instance(start, gpcs, Task(tenant, Kind.RETRAINING))


def _stage(most: int = 8) -> Stage:
    return Stage(
        lead_s=4.0,
        overheads_s={"a": 1.0, "b": 1.0},
        on=SHARES,
        memory=GpuMemory(most_standbys=most),
    )


def test_every_serving_instance_gets_a_standby_of_the_other_tenants() -> None:
    stage = _stage()
    said = stage.follow(0.0, (serves("a", 0), serves("b", 4)))
    assert {line for line in said if line.startswith("prepare")} == {
        "prepare 4g@0 b",
        "prepare 4g@4 a",
    }


def test_slices_change_their_tenant_without_a_start_and_back() -> None:
    stage = _stage()
    stage.follow(0.0, (serves("a", 0), serves("b", 4, 2), serves("b", 6, 2)))
    changed = (serves("a", 0), serves("a", 4, 2), serves("b", 6, 2))
    assert stage.follow(9.0, changed) == ["drain 2g@4 b", "keep 2g@4 b", "warm 2g@4 a"]
    back = stage.follow(20.0, (serves("a", 0), serves("b", 4, 2), serves("b", 6, 2)))
    assert back == ["drain 2g@4 a", "keep 2g@4 a", "warm 2g@4 b"]


def test_the_old_worker_serves_until_the_standby_has_started() -> None:
    stage = _stage()
    stage.held_back = {"prepare 2g@4 a"}
    stage.follow(0.0, (serves("a", 0), serves("b", 4, 2), serves("b", 6, 2)))
    stage.follow(9.0, (serves("a", 0), serves("a", 4, 2), serves("b", 6, 2)))
    assert stage.states()["2g@4"] == "ready b"
    assert stage.executor.late_s(9.5, Instance(4, 2)) >= 0.0
    said = stage.on(10.0, Prepared(Instance(4, 2), "a"))
    assert said == ["drain 2g@4 b", "keep 2g@4 b", "warm 2g@4 a"]


def test_the_plan_does_not_wait_for_an_instance_while_its_slices_serve() -> None:
    stage = _stage()
    stage.held_back = {"prepare 2g@4 a", "warm 2g@4 a"}
    stage.follow(0.0, (serves("a", 0), serves("b", 4, 2), serves("b", 6, 2)))
    stage.follow(9.0, (serves("a", 0), serves("a", 4, 2), serves("b", 6, 2)))
    stage.on(10.0, Prepared(Instance(4, 2), "a"))
    assert stage.executor.late_s(10.2, Instance(4, 2)) == pytest.approx(0.2)


def test_a_standby_that_cannot_start_holds_nothing_up() -> None:
    stage = _stage()
    stage.held_back = {"prepare 2g@4 a"}
    stage.follow(0.0, (serves("a", 0), serves("b", 4, 2), serves("b", 6, 2)))
    stage.follow(9.0, (serves("a", 0), serves("a", 4, 2), serves("b", 6, 2)))
    said = stage.on(10.0, Prepared(Instance(4, 2), "a", "out of memory"))
    assert "warm 2g@4 a" in said
    assert stage.states()["2g@4"] == "ready a"


def test_workers_of_other_sizes_wait_while_their_slices_train() -> None:
    stage = _stage()
    small = (serves("a", 0), serves("b", 4, 2), serves("b", 6, 2))
    stage.follow(0.0, small)
    said = stage.follow(9.0, (serves("b", 0, 2), serves("a", 2, 2), trains("b", 4)))
    assert "keep 2g@6 b" in said
    assert "train 4g@4 b" in said
    back = stage.follow(20.0, small, window=1)
    assert "stopworker" not in " ".join(back)


def test_standbys_are_limited_also_where_more_are_needed() -> None:
    stage = _stage(most=1)
    waiting: set[str] = set()

    def follow(now_s: float, *layout: Instance) -> None:
        for line in stage.follow(now_s, layout):
            name, _, rest = line.partition(" ")
            if name in ("prepare", "keep"):
                waiting.add(rest)
            elif name in ("discard", "warm"):
                waiting.discard(rest)
            assert len(waiting) <= 1 + (name == "keep"), line

    follow(0.0, serves("a", 0), serves("b", 4))
    follow(9.0, *(serves("b" if start < 4 else "a", start, 1) for start in range(8)))
    assert stage.states()["1g@0"] == "ready b"
    follow(20.0, serves("a", 0), serves("b", 4))
    follow(30.0, serves("b", 0), serves("a", 4))
    assert stage.states() == {"4g@0": "ready b", "4g@4": "ready a"}


def test_standbys_of_other_sizes_make_room_for_those_of_instances_that_serve() -> None:
    stage = _stage(most=4)
    stage.follow(0.0, tuple(serves("a" if start < 4 else "b", start, 1) for start in range(8)))
    said = stage.follow(9.0, (serves("a", 0), serves("b", 4)))
    said += stage.tick(10.0) + stage.tick(11.0)
    assert "prepare 4g@0 b" in said
    assert "prepare 4g@4 a" in said


def test_a_lost_standby_is_started_again_after_a_while() -> None:
    stage = _stage()
    stage.follow(0.0, (serves("a", 0), serves("b", 4)))
    assert stage.on(5.0, Prepared(Instance(0, 4), "b", "was killed by SIGKILL")) == []
    assert stage.tick(6.0) == []
    assert stage.tick(5.0 + RETRY_S) == ["prepare 4g@0 b"]


def test_standbys_of_a_tenant_that_left_end_when_nothing_else_changes() -> None:
    stage = _stage()
    stage.follow(0.0, (serves("a", 0), serves("b", 4)), (serves("a", 0), serves("a", 4)))
    stage.tick(1.0)
    stage.tick(2.0)
    assert stage.tick(3.0) == []
    assert "discard 4g@4 b" in stage.follow(4.0, (serves("a", 0), serves("a", 4)))


def _hold(stage: Stage, now_s: float, *tenants: str) -> list[str]:
    return stage.carry_out(now_s, stage.executor.hold(now_s, frozenset(tenants)))


def test_no_standby_of_a_held_tenant_is_started() -> None:
    stage = _stage()
    _hold(stage, 0.0, "b")
    said = stage.follow(1.0, (serves("a", 0), serves("b", 4)))
    said += stage.follow(2.0, (serves("a", 0), serves("b", 4)), (serves("b", 0), serves("a", 4)))
    assert {line for line in said if line.startswith("prepare")} == {"prepare 4g@4 a"}
    assert "prepare 4g@0 b" in _hold(stage, 3.0)


def test_a_standby_of_a_held_tenant_makes_room_for_no_other_standby() -> None:
    stage = _stage(most=2)
    stage.follow(0.0, (serves("a", 0), serves("b", 4)))
    _hold(stage, 8.0, "b")
    said = stage.follow(9.0, (serves("a", 0, 2), serves("c", 2, 2), serves("b", 4)))
    said += stage.follow(20.0, (serves("a", 0), serves("a", 4)))
    assert "discard 4g@4 a" in said
    assert "discard 4g@0 b" not in said
    assert "discard 4g@0 b" in _hold(stage, 30.0)


def test_a_standby_of_a_held_tenant_ends_where_nothing_else_frees_memory_for_a_process() -> None:
    standbys, place = Standbys(GpuMemory(most_standbys=8)), Instance(0, 4)
    a, b = (Task(tenant, Kind.INFERENCE) for tenant in "ab")
    for task in (a, b):
        standbys.keep(Site.of(SHARES, place), task, 0.0)
    assert standbys.update((), (a, b), (), 0.0, 1.0, held={"b"}) == []
    assert standbys.update((), (a, b), (), -1.0, 2.0, held={"b"}) == [
        Discard(place, "a"),
        Discard(place, "b"),
    ]


def test_which_standby_comes_first_does_not_depend_on_hashes() -> None:
    stage = _stage(most=1)
    layout = (serves("a", 0), serves("c", 4, 2), serves("b", 6, 2))
    assert "prepare 4g@0 b" in stage.follow(0.0, layout)


def test_standbys_of_a_removed_tenant_and_those_of_a_daemon_that_stops_end() -> None:
    stage = _stage()
    stage.follow(0.0, (serves("a", 0), serves("b", 4)))
    assert "discard 4g@0 b" in stage.follow(9.0, (serves("a", 0), serves("a", 4)))
    stage.follow(20.0, (serves("a", 0), serves("b", 4)))
    said = stage.carry_out(30.0, stage.executor.leave(30.0))
    assert {line for line in said if line.startswith("discard")}
    assert not [line for line in said if line.startswith("keep")]
    assert stage.states() == {}


def test_mig_instances_have_none() -> None:
    stage = Stage(lead_s=4.0, on=board("H200-141GB"))
    stage.follow(0.0, (serves("a", 0), serves("b", 4, 3)))
    said = stage.follow(9.0, (serves("b", 0), serves("a", 4, 3)))
    assert not [line for line in said if line.startswith(("prepare", "keep", "discard"))]
