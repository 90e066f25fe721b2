"""Random decisions and faults through the executor, every instruction judged by a virtual board."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.executor_plans import random_slots
from support.executor_world import Faults, Times, World

from migrator.control.events import Replan
from migrator.control.executor import Executor
from migrator.control.memory import GpuMemory
from migrator.control.units import AVOIDED_SLOTS
from migrator.core.catalogue import board
from migrator.core.problem import Charge, Instance
from migrator.planning.problem_file import example_problem, parse_problem
from migrator.planning.solve import make_plan

BOARDS = ("A100-40GB", "A30-24GB", "H200-141GB-MPS")
LONG_ENOUGH_S = 2.0 * AVOIDED_SLOTS + 60.0

NO_FAULTS = Faults()
seeds = st.integers(0, 2**32 - 1)


def _world(seed: int, name: str, faults: Faults = NO_FAULTS, lead_s: float = 4.0) -> World:
    overheads_s, most = {"a": 1.5, "b": 3.0}, 6 if board(name).is_of_shares else 0
    executor = Executor(board(name), lead_s, overheads_s, memory=GpuMemory(most_standbys=most))
    return World(board(name), executor, seed, faults)


@settings(deadline=None, max_examples=amount(15, 60))
@given(seeds, st.sampled_from(BOARDS), st.sampled_from([0.0, 4.0, 20.0]))
def test_without_faults_what_is_wanted_last_is_reached(seed: int, name: str, lead_s: float) -> None:
    chance = random.Random(seed)
    world = _world(seed, name, lead_s=lead_s)
    world.follow(random_slots(chance, board(name)), window=0)
    world.run(60.0 + 60.0)
    assert world.missing() == []


@settings(deadline=None, max_examples=amount(15, 60))
@given(seeds, st.sampled_from(BOARDS))
def test_replanned_in_the_middle_of_everything_with_faults(seed: int, name: str) -> None:
    chance = random.Random(seed)
    create, destroy, warm, serve, train = (chance.choice([0.0, 0.1, 0.5]) for _ in range(5))
    world = _world(seed, name, Faults(create, destroy, warm, serve, train, until_s=60.0))
    window = 0
    while world.now_s < 60.0:
        world.follow(random_slots(chance, board(name)), window=window)
        world.run(chance.uniform(0.1, 20.0))
    world.run(LONG_ENOUGH_S)
    assert world.missing() == []


@settings(deadline=None, max_examples=amount(15, 60))
@given(seeds)
def test_hopeless_faults_never_break_a_rule_and_are_told(seed: int) -> None:
    world = _world(seed, "A100-40GB", Faults(1.0, 1.0, 1.0, 1.0, 1.0, until_s=100.0))
    world.follow(random_slots(random.Random(seed), world.board))
    world.run(100.0)
    assert world.count(Replan) > 0
    assert len(world.log) < 600
    world.run(LONG_ENOUGH_S)
    assert [line for line in world.missing() if "training" not in line] == []


@settings(deadline=None, max_examples=amount(15, 60))
@given(seeds, st.sampled_from(BOARDS))
def test_leaving_empties_the_board(seed: int, name: str) -> None:
    world = _world(seed, name)
    world.follow(random_slots(random.Random(seed), board(name)))
    world.run(random.Random(seed).uniform(0.0, 30.0))
    world.leave()
    world.run(30.0)
    assert world.bodies == {}
    assert world.executor.units == ()
    assert world.standbys == {}


@pytest.mark.parametrize("seed", range(3))
def test_the_same_world_gives_the_same_instructions(seed: int) -> None:
    logs = []
    for _ in range(2):
        world = _world(seed, "A100-40GB", Faults(0.2, 0.2, 0.2, 0.2, 0.2, until_s=30.0))
        world.follow(random_slots(random.Random(seed), world.board))
        world.run(40.0)
        logs.append(world.log)
    assert logs[0] == logs[1]


def test_the_example_plan_is_followed_and_a_lead_hides_part_of_the_overhead() -> None:
    """Without faults nothing is a reason to plan again; what is begun ahead is late for less."""
    problem = parse_problem(example_problem())
    plan = make_plan(problem.with_charge(Charge.SURVIVORS), steady=True)
    slots = tuple(slot.instances for slot in plan.slots)
    shortest_s = min(retraining.end - retraining.start for retraining in plan.retrainings) - 0.5
    late_unit_s = [_late_unit_s(slots, lead_s, shortest_s) for lead_s in (0.0, 5.0)]
    assert late_unit_s[1] < late_unit_s[0]


def _late_unit_s(slots: tuple[tuple[Instance, ...], ...], lead_s: float, train_s: float) -> float:
    overheads_s = {"bert": 2.0, "resnet50": 1.5}
    on = board("A100-40GB")
    times = Times(train_s=(train_s, train_s))
    world = World(on, Executor(on, lead_s, overheads_s), times=times)
    world.follow(slots)
    world.run(len(slots) + 30.0)
    assert world.missing() == []
    assert world.count(Replan) == 0
    return world.late_unit_s
