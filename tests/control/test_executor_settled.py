"""An executor that skips steps gives the instructions of one that makes every step."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.executor_plans import random_slots
from support.executor_world import Body, Faults, World

from migrator.control.events import Destroy, Instruction
from migrator.control.executor import Executor
from migrator.control.memory import GpuMemory
from migrator.control.timeline import Timeline
from migrator.core.catalogue import board
from migrator.core.problem import Instance, Kind, Task

BOARDS = ("A100-40GB", "A30-24GB", "H200-141GB-MPS")


class _Steady(Executor):
    """Makes every step."""

    def _is_settled(self, timeline: Timeline, now_s: float) -> bool:
        del timeline, now_s
        return False


def _log(kind: type[Executor], seed: int, tick_s: float) -> list[tuple[float, Instruction]]:
    chance = random.Random(seed)
    this = board(chance.choice(BOARDS))
    overheads_s = {"a": 1.5, "b": 3.0}
    most = 5 if this.is_of_shares else 0
    executor = kind(
        this, chance.choice([0.0, 4.0]), overheads_s, memory=GpuMemory(most_standbys=most)
    )
    create, destroy, warm, serve, train = (chance.choice([0.0, 0.0, 0.3]) for _ in range(5))
    faults = Faults(create, destroy, warm, serve, train, until_s=chance.choice([0.0, 40.0]))
    world = World(this, executor, seed, faults, tick_s=tick_s)
    window, slots = 0, random_slots(chance, this)
    while world.now_s < 80.0:
        match chance.randrange(7):
            case 0 | 1:
                slots = random_slots(chance, this)
                world.follow(slots, window=window)
            case 2:
                window += 1
                world.done.clear()
                world.failed.clear()
                world.follow(slots + slots[::-1], window=window)
            case 3:
                world.follow(slots[-1:], window=window)
            case 4:
                overheads_s[chance.choice("ab")] = chance.uniform(0.5, 8.0)
            case 5 if world.log:
                world.pause()
                world.run(chance.uniform(0.1, 6.0))
                world.resume()
        world.run(chance.uniform(0.1, 25.0))
    if chance.random() < 0.3:
        world.leave()
        world.run(30.0)
    return world.log


@settings(deadline=None, max_examples=amount(20, 200))
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.25, 1.0, 3.5]))
def test_skipped_steps_change_no_instruction(seed: int, tick_s: float) -> None:
    assert _log(Executor, seed, tick_s) == _log(_Steady, seed, tick_s)


def test_a_stretch_that_passed_between_two_ticks_is_noticed() -> None:
    """The same layout before and after it does not have the same future."""
    serving, spare = Instance(0, 3, Task("a", Kind.INFERENCE)), Instance(4, 3)
    first, between = (serving,), (serving, spare)
    world = World(board("A100-40GB"), Executor(board("A100-40GB")), tick_s=1.5)
    world.executor.adopt(0.0, [spare])
    world.bodies[world._place(spare)] = Body("idle")
    world.follow([*[first] * 5, between, first])
    world.run(4.5)
    assert world.count(Destroy) == 0
    world.run(2.0)
    assert world.count(Destroy) == 1
