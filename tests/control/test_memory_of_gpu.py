"""Processes on an emulated GPU that counts their memory: they never need more than it has."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from support.amount import amount
from support.executor_stage import Stage
from support.executor_world import Times, World

from migrator.control import events as ev
from migrator.control.executor import Executor
from migrator.control.memory import PER_SLICE, GpuMemory, ProcessKind, ProcessMemory
from migrator.core.catalogue import Placement, board, placement_sets
from migrator.core.problem import Instance, Kind, Task
from migrator.core.profiles import Service
from migrator.core.profiles import profile as packaged

SHARES, MIG = board("H200-141GB-MPS"), board("H200-141GB")
WHOLE_MIB = SHARES.memory_mib_of(SHARES.sizes[-1])


def service_of(
    tenant: str, worker_mib: float, training_mib: float, estimate_mib: float | None = None
) -> Service:
    """A tenant whose processes were measured to hold this."""
    measured = replace(
        packaged("resnet-50", "H200-141GB"),
        worker_held_mib={1: worker_mib},
        retraining_held_mib=training_mib,
        estimate_held_mib=estimate_mib or training_mib,
    )
    return Service(tenant, measured, 0.1, 1)


class OutOfMemoryError(AssertionError):
    """What torch raises on a real GPU."""


@dataclass
class MemoryWorld(World):
    """A board whose processes announce what they take, on the GPU or on their instance."""

    services: dict[str, Service] = field(default_factory=dict)
    estimates: dict[str, float] = field(default_factory=dict)
    """By tenant, when each ends."""
    most_standbys: int = 0

    def used_mib(self) -> float:
        """Of the whole GPU."""
        used = sum(self._mib(body.tenant, body.state) for body in self.bodies.values())
        used += sum(self._mib(tenant, "standby") for _, tenant in self.standbys)
        return used + sum(self._mib(tenant, "estimate") for tenant in self.estimates)

    def estimate(self, tenant: str, seconds: float) -> None:
        """Begin an estimate beside the first worker of the tenant, if it is admitted."""
        places = self.serving(tenant)
        if tenant in self.estimates or not places:
            return
        beside = Instance(places[0].start, places[0].gpcs)
        if self.executor.admit_estimate(self.services[tenant], beside):
            self._obey(self.executor.tick(self.now_s))
            self.estimates[tenant] = self.now_s + seconds
            self._count()

    def pass_estimates(self) -> None:
        for tenant in [name for name, end_s in self.estimates.items() if end_s <= self.now_s]:
            del self.estimates[tenant]
            self.executor.memory.end_estimate(tenant)

    def _judge_and_do(self, place: Placement, said: ev.Instruction) -> None:
        super()._judge_and_do(place, said)
        self._count()

    def _count(self) -> None:
        self.most_standbys = max(self.most_standbys, len(self.standbys))
        if self.used_mib() > WHOLE_MIB:
            raise OutOfMemoryError(f"{self.used_mib():.0f} MiB at {self.now_s:.1f} s")

    def _mib(self, tenant: str | None, state: str) -> float:
        if tenant is None:
            return 0.0
        profile = self.services[tenant].profile
        if state == "training":
            return profile.held_by_retraining_mib
        if state == "estimate":
            return profile.held_by_estimate_mib
        return profile.held_by_worker_mib(1)


def layout(
    chance: random.Random, places: Sequence[Placement], tenants: list[str]
) -> tuple[Instance, ...]:
    """Every tenant is served, some are retrained."""
    owners = [*tenants, *(chance.choice(tenants) for _ in places[len(tenants) :])]
    chance.shuffle(owners)
    served: set[str] = set()
    trained: set[str] = set()
    instances = []
    for place, owner in zip(places, owners, strict=True):
        trains = owner in served and owner not in trained and chance.random() < 0.5
        (trained if trains else served).add(owner)
        task = Task(owner, Kind.RETRAINING if trains else Kind.INFERENCE)
        instances.append(Instance(place.start, place.gpcs, task))
    return tuple(instances)


def lived(seed: int, planned_part: float = 1.0) -> MemoryWorld:
    """Several windows of 2 to 7 random tenants on the slices of one GPU.

    `planned_part`: what the plan counts with over what processes take.
    """
    chance = random.Random(seed)
    tenants = [chr(ord("a") + number) for number in range(chance.randint(2, 7))]
    takes = {
        name: (chance.uniform(1_000, 8_000), chance.uniform(5_000, 30_000)) for name in tenants
    }
    services = {name: service_of(name, *mib) for name, mib in takes.items()}
    of_tenants = {
        name: ProcessMemory(service_of(name, *(planned_part * size for size in mib)))
        for name, mib in takes.items()
    }
    memory = GpuMemory.of(SHARES, lambda: of_tenants)
    executor = Executor(SHARES, 4.0, dict.fromkeys(tenants, 1.5), memory=memory)
    world = MemoryWorld(SHARES, executor, seed, times=Times(train_s=(3.0, 30.0)), services=services)
    divisions = [layout for layout in placement_sets(SHARES) if len(layout) >= len(tenants)]
    if len(tenants) > 4:  # the order of changes is searched for longer
        divisions = [chance.choice(divisions)]
    for window in range(3):
        slots = [
            layout(chance, chance.choice(divisions), tenants) for _ in range(chance.randint(1, 3))
        ]
        world.done.clear()
        world.follow([slot for slot in slots for _ in range(8)], window=window)
        for _ in range(20):
            world.run(1.0)
            world.pass_estimates()
            if chance.random() < 0.3:
                world.estimate(chance.choice(tenants), chance.uniform(1.0, 8.0))
    return world


@pytest.mark.parametrize("seed", range(amount(5, 12)))
def test_no_process_runs_out_of_memory(seed: int) -> None:
    world = lived(seed)
    assert world.count(ev.Warm) > 0


def test_by_profiles_of_a_single_step_they_do() -> None:
    """Profiles recorded what torch had allocated: about a third of what a process holds."""

    def fails(seed: int) -> bool:
        try:
            lived(seed, planned_part=1 / 3)
        except OutOfMemoryError:
            return True
        return False

    assert sum(map(fails, range(amount(5, 12)))) >= amount(2, 4)


def serves(tenant: str, start: int, gpcs: int = 4) -> Instance:
    return Instance(start, gpcs, Task(tenant, Kind.INFERENCE))


def trains(tenant: str, start: int, gpcs: int = 4) -> Instance:
    return Instance(start, gpcs, Task(tenant, Kind.RETRAINING))


def _stage(limit_mib: float, *services: Service) -> Stage:
    of_tenants = {service.tenant: ProcessMemory(service) for service in services}
    memory = GpuMemory(limit_mib, lambda: of_tenants, most_standbys=16)
    return Stage(4.0, dict.fromkeys(of_tenants, 1.0), SHARES, memory=memory)


def _settled(stage: Stage, now_s: float) -> list[str]:
    return [word for step in range(6) for word in stage.tick(now_s + 0.1 * step)]


def _named(said: list[str], name: str) -> set[str]:
    return {line for line in said if line.startswith(name)}


A, B = service_of("a", 1_000, 10_000), service_of("b", 3_000, 10_000)
BOTH = tuple(serves("a" if start < 4 else "b", start, 1) for start in range(8))
"""Their workers hold 16,000 MiB, and could be of 24,000."""


def test_as_many_standbys_wait_as_fit_each_with_its_own_memory() -> None:
    stage = _stage(16_000 + 7_500, A, B)
    said = stage.follow(0.0, BOTH) + _settled(stage, 1.0)
    assert sum(3_000 if line.endswith("b") else 1_000 for line in _named(said, "prepare")) > 6_000
    assert stage.executor.memory.limit_mib >= 16_000 + sum(
        3_000 if line.endswith("b") else 1_000 for line in _named(said, "prepare")
    )
    none = _stage(16_500, A, B)
    assert not _named(none.follow(0.0, BOTH) + _settled(none, 1.0), "prepare")


def test_standbys_give_way_to_a_training_before_it_begins() -> None:
    stage = _stage(40_000, A, B)
    stage.follow(0.0, BOTH)
    _settled(stage, 1.0)
    said = stage.follow(9.0, (*BOTH[:7], trains("b", 7, 1)))
    assert _named(said, "discard")
    assert said.index("train 1g@7 b") > max(map(said.index, _named(said, "discard")))


def test_a_training_without_memory_waits_for_the_one_before_it() -> None:
    stage = _stage(36_000, A, B)
    layout = (*BOTH[:3], trains("a", 3, 1), *BOTH[4:7], trains("b", 7, 1))
    said = stage.follow(0.0, layout) + _settled(stage, 1.0)
    assert "train 1g@3 a" in said
    assert "train 1g@7 b" not in said
    after = stage.on(5.0, ev.TrainingEnded(Instance(3, 1), "a", ok=True))
    assert "train 1g@7 b" in after + _settled(stage, 5.0)


def test_a_training_that_never_finds_all_it_would_take_begins_alone() -> None:
    large = service_of("b", 3_000, 30_000)
    least_mib = large.profile.training_mib
    assert 3_000 < least_mib < 6_000
    layout = (*BOTH[:3], trains("a", 3, 1), *BOTH[4:7], trains("b", 7, 1))
    stage = _stage(7 * 3_000 + 10_000 + least_mib, A, large)
    said = stage.follow(0.0, layout) + _settled(stage, 1.0)
    assert "train 1g@3 a" in said
    assert "train 1g@7 b" not in said, "the other one ends and frees its memory"
    after = stage.on(5.0, ev.TrainingEnded(Instance(3, 1), "a", ok=True))
    assert "train 1g@7 b" in after + _settled(stage, 5.0)
    none = _stage(7 * 3_000 + least_mib - 1, A, large)
    said = none.follow(0.0, (*BOTH[:7], trains("b", 7, 1))) + _settled(none, 1.0)
    assert not _named(said, "train")


def test_an_estimate_gets_its_room_from_standbys_or_waits() -> None:
    stage = _stage(40_000, A, B)
    stage.follow(0.0, BOTH)
    _settled(stage, 1.0)
    assert stage.executor.admit_estimate(A, Instance(0, 1))
    assert _named(stage.tick(2.0), "discard")
    assert not stage.executor.admit_estimate(A, Instance(0, 1)), "one runs already"
    assert not stage.executor.admit_estimate(B, Instance(4, 1)), "no memory beside it"
    stage.executor.memory.end_estimate("a")
    assert _named(_settled(stage, 3.0), "prepare")
    assert stage.executor.admit_estimate(B, Instance(4, 1))


@pytest.mark.parametrize("worker_mib", [2_000, 14_000])
def test_on_mig_an_estimate_shares_an_instance_with_its_worker(worker_mib: float) -> None:
    service = service_of("a", worker_mib, 60_000)
    of_tenants = {"a": ProcessMemory(service)}
    executor = Executor(MIG, memory=GpuMemory.of(MIG, lambda: of_tenants))
    small, large = Instance(0, 1), Instance(4, 3)
    assert executor.admit_estimate(service, small) is (worker_mib == 2_000)
    assert executor.admit_estimate(service, large)


def test_a_process_that_reports_more_than_its_profile_counts_with_that() -> None:
    memory = ProcessMemory(A)
    memory.report(ProcessKind.WORKER, 900.0)
    assert memory.held_mib(ProcessKind.WORKER) == 1_000
    memory.report(ProcessKind.WORKER, 1_700.0)
    assert memory.held_mib(ProcessKind.WORKER) == 1_700
    memory.report(ProcessKind.WORKER, 0.0)
    assert memory.held_mib(ProcessKind.WORKER) == 1_700
    assumed = ProcessMemory(Service("a", packaged("resnet-50", "H200-141GB"), 0.1, 1))
    assert assumed.held_mib(ProcessKind.RETRAINING) > 5_000
    assumed.report(ProcessKind.RETRAINING, 5_000.0)
    assert assumed.held_mib(ProcessKind.RETRAINING) == 5_000, "measured instead of assumed"


def test_standbys_need_profiles_with_memory_and_mps() -> None:
    unknown = replace(packaged("resnet-50", "H200-141GB"), memory_mib={})
    of_tenants = {"a": ProcessMemory(A)}
    assert GpuMemory.of(SHARES, lambda: of_tenants).most_standbys == PER_SLICE * 8
    assert GpuMemory.of(MIG, lambda: of_tenants).most_standbys == 0
    of_tenants["b"] = ProcessMemory(Service("b", unknown, 0.1, 1))
    assert GpuMemory.of(SHARES, lambda: of_tenants).most_standbys == 0
