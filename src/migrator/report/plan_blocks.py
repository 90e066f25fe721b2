"""The blocks of a plan's picture: each instance on its slices, from when to when.

Part of `draw_plan`; plain data without a drawing library.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from migrator.core.instance import Instance, Kind, Task
from migrator.core.plan import Allocation, Plan
from migrator.core.problem import Charge, Initial, Problem


@dataclass(frozen=True)
class Block:
    """An instance that holds one task without a break: slots `first` to `end` - 1."""

    start: int
    width: int
    gpcs: int
    profile: str
    task: Task | None
    first: int
    end: int
    cold_s: float = 0.0
    """Seconds from its beginning in which it serves nothing yet."""

    @property
    def slices(self) -> str:
        """Its memory slices in words."""
        last = self.start + self.width - 1
        return f"slice {self.start}" if self.width == 1 else f"slices {self.start}-{last}"


def blocks_of(problem: Problem, plan: Plan) -> tuple[Block, ...]:
    """The plan's instances, consecutive slots of the same one merged, by beginning and slice."""
    opened: dict[Instance, int] = {}
    found: list[Block] = []
    comings = list(_comings(problem, plan))
    for slot, allocation in enumerate((*plan.slots, Allocation(()))):
        held = set(allocation.instances)
        for instance in [each for each in opened if each not in held]:
            first = opened.pop(instance)
            cold_s = _cold_s(problem, instance, first, comings[first])
            found.append(_block(problem, instance, first, slot, cold_s))
        for instance in held:
            opened.setdefault(instance, slot)
    return tuple(sorted(found, key=lambda block: (block.first, block.start)))


def _block(problem: Problem, instance: Instance, first: int, end: int, cold_s: float) -> Block:
    profile = problem.board.plain_profiles[instance.gpcs]
    return Block(
        start=instance.start,
        width=profile.memory_slices,
        gpcs=instance.gpcs,
        profile=profile.name,
        task=instance.task,
        first=first,
        end=end,
        cold_s=min(cold_s, (end - first) * problem.slot_s),
    )


_Spot = tuple[int, int, str]
"""Start, GPCs and tenant: what makes an instance the same from slot to slot."""


def _spots(instances: Iterable[Instance]) -> list[_Spot]:
    return [(each.start, each.gpcs, each.task.tenant) for each in instances if each.task]


def _comings(problem: Problem, plan: Plan) -> Iterator[dict[_Spot, float]]:
    """For each slot, since which slot its instances are with their tenants, in either task.

    Infinitely long for what is held before the window; where nothing is known of before, for
    all of slot 0.
    """
    before = problem.initial or Initial(plan.slots[0].instances)
    since = dict.fromkeys(_spots(before.instances), -math.inf)
    for slot, allocation in enumerate(plan.slots):
        since = {spot: since.get(spot, slot) for spot in _spots(allocation.instances)}
        yield since


def _cold_s(problem: Problem, instance: Instance, first: int, comings: dict[_Spot, float]) -> float:
    """How long an instance that takes up its task at slot `first` serves nothing."""
    task = instance.task
    if problem.charge is not Charge.SURVIVORS or task is None or task.kind is not Kind.INFERENCE:
        return 0.0
    there_s = (first - comings[instance.start, instance.gpcs, task.tenant]) * problem.slot_s
    return max(0.0, problem.tenant(task.tenant).overhead_s - there_s)


def blocks_by_task(blocks: Iterable[Block]) -> dict[Task | None, list[Block]]:
    """The blocks of each task, in the order they begin; None: nobody uses them."""
    grouped: dict[Task | None, list[Block]] = {}
    for block in blocks:
        grouped.setdefault(block.task, []).append(block)
    return grouped


def label_that_fits(block: Block, room: float) -> str:
    """Size and tenant, or the size alone, or nothing: what `room` characters can hold."""
    size = f"{block.gpcs}g"
    full = f"{size} {short(block.task.tenant)}" if block.task else size
    return next((text for text in (full, size) if len(text) + 1 <= room), "")


def short(name: str, longest: int = 18) -> str:
    """A name cut so that it cannot break a layout."""
    return name if len(name) <= longest else name[: longest - 1] + "…"
