"""Time that tenants have no instance at all.

    PYTHONPATH=tests python -m benchmarks.without_instance [--seeds N]

Random decisions on three boards, followed by the executor in the virtual time of its tests, with
and without an order of steps that keeps one ready instance per tenant
(control/keep_last_instance.py). Then the same decisions as plans, with steps that take as long as
plans assume: how much of that time the `survivors` charge contains, and how much the predicted
goodput does (control/rehearsal.py).
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any
from unittest.mock import patch

from support.executor_plans import Slots, random_slots
from support.executor_world import Times, World

from migrator.control import keep_last_instance
from migrator.control.events import Instruction, Train
from migrator.control.executor import Executor
from migrator.control.keep_last_instance import Order
from migrator.control.rehearsal import without_instance
from migrator.core.catalogue import Board, Placement, board
from migrator.core.problem import Instance, Kind, Task

BOARDS = ("A100-40GB", "A30-24GB", "H200-141GB")
OVERHEADS_S = (1.5, 3.0, 6.0)
"""Overheads of plans, in turn."""
SETTLED_SLOTS = 12
"""Slots that the last layout of a plan stays in force."""
BEGUN_S, RUN_S = 5.0, 130.0
"""Until everybody was served once; until every decision has come to rest."""


class Watched(World):
    """A world that counts seconds in which a tenant is to be served and nothing serves it."""

    without_s = 0.0

    def _pass(self, at_s: float) -> None:
        tasks = [share for share in self.wanted().values() if share is not None]
        for tenant in {task.tenant for task in tasks if task.kind is Kind.INFERENCE}:
            bodies = [body for body in self.bodies.values() if body.tenant == tenant]
            if self.now_s > BEGUN_S and not any(
                body.state in ("ready", "draining") for body in bodies
            ):
                self.without_s += at_s - self.now_s
        super()._pass(at_s)


def followed(seeds: Iterable[int]) -> tuple[float, float]:
    """Seconds without any instance, and seconds that instances were not yet as planned."""
    without_s = late_s = 0.0
    for seed in seeds:
        for name in BOARDS:
            executor = Executor(board(name), 4.0, {"a": 1.5, "b": 3.0})
            world = Watched(board(name), executor, seed)
            world.follow(random_slots(random.Random(seed), board(name)), window=0)
            world.run(RUN_S)
            assert world.missing() == []
            without_s, late_s = without_s + world.without_s, late_s + world.late_unit_s
    return without_s, late_s


def no_order(*_: Any) -> Order:
    """No instance is kept until it is replaced: what is in the way leaves at once."""
    return Order((), ())


class Assumed(Watched):
    """A world whose retrainings take as long as the decision has them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shares: dict[str, dict[int, float]] = {}

    def _pass(self, at_s: float) -> None:
        slot = int((self.now_s - self.begun_s) / self.slot_s + 1e-6)
        for task in {share for share in self.wanted().values() if share is not None}:
            if task.kind is Kind.INFERENCE and not self.serving(task.tenant):
                shares = self.shares.setdefault(task.tenant, {})
                shares[slot] = shares.get(slot, 0.0) + (at_s - self.now_s) / self.slot_s
        super()._pass(at_s)

    def _judge_and_do(self, place: Placement, said: Instruction) -> None:
        if isinstance(said, Train):
            task = Task(said.tenant, Kind.RETRAINING)
            held = Instance(place.start, place.gpcs, task)
            seconds = self.slot_s * sum(held in layout for layout in self.slots)
            self.times = replace(self.times, train_s=(seconds, seconds))
        super()._judge_and_do(place, said)


def uncharged(seeds: Iterable[int], tenants: str) -> tuple[float, float, float]:
    """Seconds without any instance, and those of them in which the charge, and the predicted
    goodput, has an instance that serves."""
    total_s = charge_s = prediction_s = 0.0
    for seed, name in product(seeds, BOARDS):
        on, overhead_s = board(name), OVERHEADS_S[seed % len(OVERHEADS_S)]
        slots = tuple(
            tuple(instance for instance in layout if instance.task is not None)
            for layout in random_slots(random.Random(seed), on, tenants)
        )
        slots = (*slots, *slots[-1:] * SETTLED_SLOTS)
        world = _carried_out(on, slots, dict.fromkeys(tenants, overhead_s), seed)
        rehearsed = without_instance(on, slots, 1.0, dict.fromkeys(tenants, overhead_s))
        for tenant in tenants:
            shares = world.shares.get(tenant, {})
            there = [shares.get(slot, 0.0) for slot in range(len(slots))]
            charged = _charged(slots, tenant, overhead_s)
            both = list(map(max, charged, rehearsed[tenant]))
            total_s += sum(there)
            charge_s += sum(max(0.0, a - b) for a, b in zip(there, charged, strict=True))
            prediction_s += sum(max(0.0, a - b) for a, b in zip(there, both, strict=True))
    return total_s, charge_s, prediction_s


def _carried_out(on: Board, slots: Slots, overheads_s: dict[str, float], seed: int) -> Assumed:
    """Follow a decision from the serving instances of its first slot on."""
    none = (0.0, 0.0)
    world = Assumed(on, Executor(on, overheads_s=overheads_s), seed)
    world.times = Times(none, none, none, none, none, none)
    world.follow(
        (tuple(slot for slot in slots[0] if slot.task and slot.task.kind is Kind.INFERENCE),)
    )
    world.run(0.0)
    slowest_s = max(overheads_s.values())
    world.times = replace(world.times, warm_s=(slowest_s, slowest_s))
    world.follow(slots, window=0)
    world.shares.clear()
    world.run(float(len(slots)))
    return world


def _charged(slots: Slots, tenant: str, overhead_s: float) -> list[float]:
    """Per slot of 1 s, the share in which no instance of the tenant is warm by the charge."""
    ages: dict[tuple[int, int], float] | None = None
    shares = []
    for layout in slots:
        own = [
            instance
            for instance in layout
            if instance.task is not None and instance.task.tenant == tenant
        ]
        before = dict.fromkeys(((e.start, e.gpcs) for e in own), math.inf) if ages is None else ages
        ages = {(e.start, e.gpcs): before.get((e.start, e.gpcs), -1.0) + 1 for e in own}
        warm = [
            min(max(ages[e.start, e.gpcs] + 1 - overhead_s, 0.0), 1.0)
            for e in own
            if e.task is not None and e.task.kind is Kind.INFERENCE
        ]
        shares.append(1 - max(warm, default=1.0))
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=300)
    seeds = range(parser.parse_args().seeds)
    with patch.object(keep_last_instance, "find_order", no_order):
        before = followed(seeds)
    after = followed(seeds)
    for title, old, new in zip(("no instance", "not as planned"), before, after, strict=True):
        print(f"{title:15} {old:8.0f} s -> {new:8.0f} s  {new / old - 1:+.1%}")
    for tenants in ("ab", "abc"):
        total_s, charge_s, prediction_s = uncharged(seeds, tenants)
        print(
            f"{len(tenants)} tenants as planned: {total_s:.1f} s without an instance, not in the "
            f"charge {charge_s:.1f} s, not in the prediction {prediction_s:.1f} s"
        )


if __name__ == "__main__":
    main()
