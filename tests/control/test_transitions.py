"""No tenant is left without a ready instance where any order of steps avoids it."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.executor_stage import Stage, serves, trains
from support.executor_world import Faults, Slots, Times, World
from support.step_orders import Units, has_order

from migrator.control import events as ev
from migrator.control.executor import Executor
from migrator.core.catalogue import Board, Place, Placement, board, board_without, placement_sets
from migrator.core.problem import Instance, Kind, Task

BOARDS = ("A100-40GB", "H200-141GB", "A30-24GB")
H200, A30 = board("H200-141GB"), board("A30-24GB")


def test_the_instance_that_stays_is_one_beside_which_the_replacements_fit() -> None:
    """As seen on an H200: 3g@4 overlaps both replacements of pictures, 1g@0 does not."""
    stage = Stage(on=H200)
    before = [serves("pictures", 1, 0), serves("pictures", 3, 4)]
    stage.follow(0.0, (*before, *(serves("news", 1, start) for start in (1, 2, 3))))
    stage.held_back = {"warm 1g@4 pictures", "warm 1g@5 pictures", "warm 1g@6 news"}
    after = [serves("pictures", 1, 4), serves("pictures", 1, 5), serves("news", 1, 6)]
    stage.follow(50.0, (*after, trains("pictures", 4, 0)))
    # 4g@0 has to wait for pictures, so all that news has there serves on as well
    assert stage.states() == {
        "1g@0": "ready pictures",
        "1g@1": "ready news",
        "1g@2": "ready news",
        "1g@3": "ready news",
        "1g@4": "warming pictures",
        "1g@5": "warming pictures",
        "1g@6": "warming news",
    }
    stage.on(51.0, ev.Ready(after[0], 1.0))
    stage.on(51.0, ev.Ready(after[1], 1.0))
    assert stage.states()["1g@3"] == "ready news"
    stage.on(52.0, ev.Ready(after[2], 1.0))
    assert stage.states() == {
        "1g@4": "ready pictures",
        "1g@5": "ready pictures",
        "1g@6": "ready news",
        "4g@0": "training pictures",
    }


def test_tenants_swap_places_through_a_temporary_instance() -> None:
    stage = Stage(on=A30)
    stage.follow(0.0, (serves("a", 1, 0), serves("b", 1, 1), serves("c", 2, 2)))
    swapped = (serves("b", 1, 0), serves("a", 1, 1))
    assert stage.follow(5.0, swapped) == [
        *("drain 2g@2 c", "stopworker 2g@2", "destroy 2g@2"),
        *("create 1g@2", "warm 1g@2 b", "drain 1g@1 b", "stopworker 1g@1"),
        *("warm 1g@1 a", "drain 1g@0 a", "stopworker 1g@0"),
        *("warm 1g@0 b", "drain 1g@2 b", "stopworker 1g@2", "destroy 1g@2"),
    ]
    assert stage.states() == {"1g@0": "ready b", "1g@1": "ready a"}


def test_a_tenant_lends_slices_for_a_temporary_instance() -> None:
    """There is no free place: b and c can swap only where a has its second instance."""
    stage = Stage(on=A30)
    mine = (serves("a", 1, 0), serves("a", 1, 1))
    stage.follow(0.0, (*mine, serves("b", 1, 2), serves("c", 1, 3)))
    said = stage.follow(5.0, (*mine, serves("c", 1, 2), serves("b", 1, 3)))
    assert stage.states() == {
        "1g@0": "ready a",
        "1g@1": "ready a",
        "1g@2": "ready c",
        "1g@3": "ready b",
    }
    assert sum(line.startswith("drain") and line.endswith("a") for line in said) == 1


def test_temporary_instances_keep_off_foreign_ones() -> None:
    stage = Stage(on=A30)
    foreign = board_without(A30, [Place(2, "1g.6gb")])
    stage.follow(0.0, (serves("a", 1, 0), serves("b", 1, 1)))
    slots = [(serves("b", 1, 0), serves("a", 1, 1))]
    said = stage.carry_out(5.0, stage.executor.follow(5.0, slots, 1.0, available=foreign))
    assert "create 1g@2" not in said
    assert "create 1g@3" in said


def test_in_a_chain_each_waits_for_the_one_before() -> None:
    stage = Stage()
    stage.follow(0.0, (serves("a", 2, 0), serves("b", 2, 2), serves("c", 2, 4)))
    stage.held_back = {"warm 1g@6 c", "warm 2g@4 b", "warm 2g@2 a", "warm 2g@0 d"}
    after = (serves("d", 2, 0), serves("a", 2, 2), serves("b", 2, 4), serves("c", 1, 6))
    stage.follow(5.0, after)
    served = {"2g@0": "ready a", "2g@2": "ready b", "2g@4": "ready c", "1g@6": "warming c"}
    assert stage.states() == served
    stage.on(6.0, ev.Ready(after[3], 1.0))
    assert stage.states() == {**served, "1g@6": "ready c", "2g@4": "warming b"}
    stage.on(7.0, ev.Ready(after[2], 1.0))
    stage.on(8.0, ev.Ready(after[1], 1.0))
    assert stage.states()["2g@0"] == "warming d"


def test_what_a_refused_creation_was_to_replace_serves_until_another_try_succeeds() -> None:
    stage = Stage()
    stage.follow(0.0, (serves("a", 3, 0), serves("a", 1, 4)))
    stage.held_back = {"create 1g@6", "warm 1g@6 a"}
    after = (serves("b", 4, 0), serves("b", 2, 4), serves("a", 1, 6))
    stage.follow(1.0, after)
    for tried_s in (1.0, 3.0, 7.0):
        stage.tick(tried_s)
        stage.on(tried_s, ev.CreateFailed(after[2], "refused"))
        assert "ready a" in stage.states().values()
    stage.tick(15.0)
    stage.on(15.5, ev.Created(after[2]))
    stage.on(16.0, ev.WorkerLost(after[2], "killed"))
    assert "ready a" in stage.states().values()
    stage.on(17.0, ev.Ready(after[2], 1.0))
    assert stage.states() == {"4g@0": "ready b", "2g@4": "ready b", "1g@6": "ready a"}


def test_a_tenant_that_must_have_a_gap_serves_until_its_own_next_instance_can_be_created() -> None:
    """a cannot grow beside its only instance; it need not leave before b has made room for it."""
    stage = Stage(on=A30)
    c = serves("c", 1, 3)
    stage.follow(0.0, (serves("a", 1, 0), serves("b", 1, 1), c))
    stage.held_back = {"warm 1g@2 b", "warm 2g@0 a"}
    stage.follow(5.0, (serves("a", 2, 0), serves("b", 1, 2), c))
    served = {"1g@0": "ready a", "1g@1": "ready b", "1g@3": "ready c"}
    assert stage.states() == {**served, "1g@2": "warming b"}
    stage.on(6.0, ev.Ready(serves("b", 1, 2), 1.0))
    assert stage.states() == {"2g@0": "warming a", "1g@2": "ready b", "1g@3": "ready c"}


def test_a_tenant_that_the_plan_leaves_as_it_is_has_no_gap_for_others() -> None:
    """Slices 0 and 1 would do for a temporary 2g of a, but d would be without an instance."""
    stage = Stage()
    foreign = board_without(board("A100-40GB"), [Place(6, "1g.5gb")])
    d = serves("d", 1, 0)
    stage.follow(0.0, (d, serves("a", 2, 2), serves("b", 1, 4), serves("c", 1, 5)))
    after = (d, serves("a", 2, 4), serves("b", 1, 2), serves("c", 1, 3), serves("c", 1, 1))
    said = stage.carry_out(5.0, stage.executor.follow(5.0, [after], 1.0, available=foreign))
    assert "drain 1g@0 d" not in said
    assert stage.states() == {
        "1g@0": "ready d",
        "1g@1": "ready c",
        "1g@2": "ready b",
        "1g@3": "ready c",
        "2g@4": "ready a",
    }


class Watched(World):
    """A world that looks at every call of the executor: if there was an order before, there is
    one after it. So no call loses the last ready instance of a tenant without need."""

    judged = 0

    def _obey(self, instructions: list[ev.Instruction]) -> None:  # type: ignore[override]
        before = self._ready()
        super()._obey(instructions)
        if self.leaving or self._ready() == before:
            return
        self.judged += 1
        target = frozenset(
            (task.tenant, place)
            for place, task in self.wanted().items()
            if task is not None and task.kind is Kind.INFERENCE
        )
        blocked = [place for place, body in self.bodies.items() if body.state == "training"]
        protected = {tenant for tenant, _ in before} & {tenant for tenant, _ in target}
        lost = protected - {tenant for tenant, _ in self._ready()}
        if lost or not has_order(self.board, self._ready(), target, blocked):
            said = [
                instruction
                for instruction in instructions
                if not isinstance(instruction, ev.Replan)
            ]
            assert not has_order(self.board, before, target, blocked), (
                f"{said} although another order serves {lost or protected} throughout"
            )

    def _ready(self) -> Units:
        return frozenset(
            (body.tenant, place)
            for place, body in self.bodies.items()
            if body.state == "ready" and body.tenant is not None
        )


def _layout(
    chance: random.Random, on: Board, tenants: str, running: dict[Placement, str]
) -> tuple[Instance, ...]:
    """Every tenant has an instance; retrainings that run stay where they are."""
    sets = [
        placements
        for placements in placement_sets(on)
        if running.keys() <= set(placements) and len(placements) >= len(tenants) + len(running)
    ]
    chosen = [placement for placement in chance.choice(sets) if placement not in running]
    chance.shuffle(chosen)
    tasks: list[Task | None] = [Task(tenant, Kind.INFERENCE) for tenant in tenants]
    trained = [tenant for tenant in tenants if tenant not in running.values()]
    while len(tasks) < len(chosen):
        draw = chance.random()
        if draw < 0.1:
            tasks.append(None)
        elif draw < 0.25 and trained:
            tasks.append(Task(trained.pop(), Kind.RETRAINING))
        else:
            tasks.append(Task(chance.choice(tenants), Kind.INFERENCE))
    held = [(place, Task(name, Kind.RETRAINING)) for place, name in running.items()]
    pairs = [*zip(chosen, tasks, strict=True), *held]
    return tuple(Instance(place.start, place.gpcs, task) for place, task in pairs)


def _change_layouts(seed: int, name: str, faults: Faults, layouts: int = 3) -> None:
    """One random layout after the other, sometimes before the last one is reached."""
    chance = random.Random(seed)
    on = board(name)
    if chance.random() < 0.3:
        profile = on.plain_profiles[1]
        on = board_without(on, [Place(chance.choice(profile.starts), profile.name)])
    most = max(map(len, placement_sets(on)))
    tenants = "abcd"[: chance.randint(1, min(4, most - 1))]
    long_s = chance.choice([3.0, 500.0])
    times = Times(train_s=(long_s, long_s))
    executor = Executor(board(name), chance.choice([0.0, 4.0]), {"a": 1.5, "b": 3.0})
    world = Watched(on, executor, seed, faults, times)
    for _ in range(layouts):
        running = {
            place: body.tenant
            for place, body in world.bodies.items()
            if body.state == "training" and body.tenant is not None
        }
        try:
            slots: Slots = (_layout(chance, on, tenants, running),)
        except IndexError:
            break  # retrainings leave no room for all tenants
        world.follow(slots, available=on)
        world.run(chance.choice([0.5, 2.0, 30.0]))
    world.run(120.0 if faults.until_s else 40.0)
    assert world.missing() == []


@settings(deadline=None, max_examples=amount(25, 200))
@given(st.integers(0, 2**32 - 1), st.sampled_from(BOARDS))
def test_where_any_order_of_steps_serves_every_tenant_one_is_found(seed: int, name: str) -> None:
    _change_layouts(seed, name, Faults())


@settings(deadline=None, max_examples=amount(12, 80))
@given(st.integers(0, 2**32 - 1), st.sampled_from(BOARDS))
def test_refused_creations_and_lost_workers_do_not_lose_the_order(seed: int, name: str) -> None:
    chance = random.Random(seed)
    create, warm, serve = (chance.choice([0.0, 0.2, 0.5]) for _ in range(3))
    _change_layouts(seed, name, Faults(create=create, warm=warm, serve=serve, until_s=60.0))
