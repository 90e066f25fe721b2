"""Random decisions that a board can take, in runs of slots, with retrainings that come and go."""

from __future__ import annotations

import random

from migrator.core.catalogue import Board, placement_sets
from migrator.core.problem import Instance, Kind, Task

Slots = tuple[tuple[Instance, ...], ...]


def random_slots(
    chance: random.Random, board: Board, tenants: str = "ab", stretches: int = 6
) -> Slots:
    """Every tenant always has an instance; some have none for a task, some are retrained on."""
    slots: list[tuple[Instance, ...]] = []
    everything = [
        placements for placements in placement_sets(board) if len(placements) >= len(tenants)
    ]
    for _ in range(chance.randint(1, stretches)):
        chosen = list(chance.choice(everything))
        chance.shuffle(chosen)
        tasks = _tasks(chance, tenants, len(chosen))
        holdings = tuple(
            Instance(place.start, place.gpcs, task)
            for place, task in zip(chosen, tasks, strict=True)
        )
        slots += [holdings] * chance.randint(1, 8)
    return tuple(slots)


def _tasks(chance: random.Random, tenants: str, count: int) -> list[Task | None]:
    tasks: list[Task | None] = [Task(tenant, Kind.INFERENCE) for tenant in tenants]
    retrained = list(tenants)
    while len(tasks) < count:
        draw = chance.random()
        if draw < 0.15:
            tasks.append(None)
        elif draw < 0.4 and retrained:
            tasks.append(Task(retrained.pop(), Kind.RETRAINING))
        else:
            tasks.append(Task(chance.choice(tenants), Kind.INFERENCE))
    return tasks
