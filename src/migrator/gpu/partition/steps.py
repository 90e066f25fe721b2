"""The fewest destroys and creates from the present instances to a wanted layout, or the blockers.

Pure. No step touches an instance that is not ours or that is in use. `partitioner` runs the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from migrator.core.catalogue import Board, MigProfile
from migrator.core.errors import GpuError
from migrator.core.placement import Place, all_places, place_mask
from migrator.gpu.drivers.base import DriverKind, Gpu, GpuInstance
from migrator.gpu.partition.layout import Layout, Places, arrangements

BETTER_HIGH_GPCS = (1, 3)
"""Sizes in GPCs that leave more space for other instances at high starts."""


class Op(StrEnum):
    """Operation of a step."""

    DESTROY = "destroy"
    CREATE = "create"


@dataclass(frozen=True)
class Step:
    """One destroy or create."""

    op: Op
    place: Place

    def __str__(self) -> str:
        return f"{self.op} {self.place}"


class BlockedError(GpuError):
    """The wanted layout is not reachable while some instances stay as they are."""

    def __init__(self, message: str, instances: tuple[GpuInstance, ...] = ()) -> None:
        super().__init__(message)
        self.instances = instances
        """The blocking instances."""


def removal_command(gpu: Gpu, instance: GpuInstance) -> str | None:
    """The command that removes an instance that MIGRator did not create; None if there is none."""
    if gpu.driver != DriverKind.MIG:
        return None
    smi, of = f"nvidia-smi mig -i {gpu.index}", f"-gi {instance.number}"
    # nvidia-smi fails to destroy compute instances if there are none.
    return f"{smi} -dci {of} && {smi} -dgi {of}" if instance.uuid else f"{smi} -dgi {of}"


def clear_command(gpu: Gpu, owner: str) -> str:
    """The command that removes an owner's instances.

    It names the MPS driver, which is never the default.
    """
    driver = f" --driver {gpu.driver}" if gpu.driver == DriverKind.MPS else ""
    return f"migrator gpu clear --owner {owner}{driver}"


def plan_steps(
    board: Board,
    present: Sequence[GpuInstance],
    ours: Collection[Place],
    wanted: Layout,
    *,
    remedy: Callable[[GpuInstance], str] | None = None,
) -> tuple[Step, ...]:
    """The fewest steps to `wanted`, destroys first. Raises BlockedError or InputError.

    `remedy` returns the suggestion for an instance that is not ours, for the error message.
    """
    situation = _Situation(board, present, ours, wanted)
    best: Places = ()
    best_cost: tuple[int, int, int, Places] | None = None
    for places in arrangements(board, wanted):
        cost = situation.cost(places)
        if best_cost is None or cost < best_cost:
            best, best_cost = places, cost
    blockers = situation.blockers(set(best))
    if blockers:
        raise BlockedError(_sentence(blockers, ours, remedy), blockers)
    return situation.steps(set(best))


class _Situation:
    """The board before a change: movable and fixed instances, and the cost of a layout."""

    def __init__(
        self,
        board: Board,
        present: Sequence[GpuInstance],
        ours: Collection[Place],
        wanted: Layout,
    ) -> None:
        there = {each.place for each in present}
        self._bits = {place: place_mask(board, place) for place in there.union(all_places(board))}
        self._weights = {each.name: _weight(each) for each in board.profiles}
        mine = [each for each in present if each.place in ours]
        self._movable = {each.place: each for each in mine if not each.holders}
        self._whole = {place for place, each in self._movable.items() if each.uuid}
        self._in_use = {each.place: each for each in mine if each.holders}
        self._foreign = {each.place: each for each in present if each.place not in ours}
        self._room = _room_beside(board, wanted)

    def cost(self, places: Places) -> tuple[int, int, int, Places]:
        """Sort key of a layout: blockers, steps, then preferences. Smaller is better."""
        wanted = set(places)
        blockers = len(self.blockers(wanted)) if self._in_use or self._foreign else 0
        kept = len(self._whole & wanted)
        there = kept + len(self._in_use.keys() & wanted) + len(self._foreign.keys() & wanted)
        steps = len(self._movable) - kept + len(wanted) - there
        weight = sum(self._weights[place.profile] * place.start for place in places)
        return blockers, steps, weight, places

    def steps(self, wanted: set[Place]) -> tuple[Step, ...]:
        """Destroys of unwanted or incomplete instances of ours, and creates of missing ones."""
        kept = self._whole & wanted
        there = kept | self._in_use.keys() | self._foreign.keys()
        return (
            *(Step(Op.DESTROY, place) for place in sorted(self._movable.keys() - kept)),
            *(Step(Op.CREATE, place) for place in sorted(wanted - there)),
        )

    def blockers(self, wanted: set[Place]) -> tuple[GpuInstance, ...]:
        """The fixed instances that cannot stay beside `wanted`, ordered by start."""
        blocking = [each for place, each in self._in_use.items() if place not in wanted]
        if self._foreign:
            blocking += self._foreign_blockers(wanted)
        return tuple(sorted(blocking, key=lambda each: each.place))

    def _foreign_blockers(self, wanted: set[Place]) -> list[GpuInstance]:
        """Instances that overlap, are incomplete at a wanted place, or exhaust their profile."""
        taken = sum(self._bits[place] for place in wanted)
        beside = Counter(place.profile for place in self._foreign if place not in wanted)
        return [
            each
            for place, each in self._foreign.items()
            if (
                each.uuid is None
                if place in wanted
                else self._bits[place] & taken or beside[place.profile] > self._room[place.profile]
            )
        ]


def _weight(profile: MigProfile) -> int:
    """Cost of a higher start; negative if it is a gain."""
    better_high = profile.gpcs in BETTER_HIGH_GPCS
    return -profile.memory_slices if better_high else profile.memory_slices


def _room_beside(board: Board, wanted: Layout) -> dict[str, int]:
    """How many more instances of each MIG profile the board allows beside the wanted ones."""
    amounts = wanted.amounts
    return {each.name: each.max_instances - amounts[each.name] for each in board.profiles}


def _sentence(
    blockers: tuple[GpuInstance, ...],
    ours: Collection[Place],
    remedy: Callable[[GpuInstance], str] | None,
) -> str:
    return "; ".join(
        _in_use(each) if each.place in ours else _not_ours(each, remedy) for each in blockers
    )


def _in_use(instance: GpuInstance) -> str:
    holders = ", ".join(map(str, instance.holders))
    return f"{instance.place} is in the way and in use by {holders}: end that or wait"


def _not_ours(instance: GpuInstance, remedy: Callable[[GpuInstance], str] | None) -> str:
    half = "" if instance.uuid else ", has no compute instance"
    then = f": {remedy(instance)}" if remedy else ""
    return f"{instance.place} is in the way{half} and is not ours{then}"
