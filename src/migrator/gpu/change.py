"""From what is on the board to a wanted layout: the fewest destroys and creates, or what blocks.

Pure. What cannot move are instances that are not ours and instances of ours that somebody uses:
no step ever touches them. The steps are walked by `partitioner`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from migrator.core.catalogue import Board, MigProfile
from migrator.core.errors import GpuError
from migrator.gpu.driver import Gpu, GpuInstance, Place
from migrator.gpu.layout import Layout, Places, laid, places_of, slices
from migrator.gpu.names import Driver

BETTER_HIGH_GPCS = (1, 3)
"""Sizes that leave more room for others at high starts."""


class Op(StrEnum):
    """What a step does."""

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
    """The wanted layout cannot be reached as long as some instances stay as they are."""

    def __init__(self, message: str, instances: tuple[GpuInstance, ...] = ()) -> None:
        super().__init__(message)
        self.instances = instances
        """What is in the way."""


def by_hand(gpu: Gpu, instance: GpuInstance) -> str | None:
    """The command that removes an instance nobody here made; None where there is none."""
    if gpu.driver != Driver.MIG:
        return None
    smi, of = f"nvidia-smi mig -i {gpu.index}", f"-gi {instance.number}"
    # nvidia-smi refuses to destroy compute instances where there are none
    return f"{smi} -dci {of} && {smi} -dgi {of}" if instance.uuid else f"{smi} -dgi {of}"


def clearing(gpu: Gpu, owner: str) -> str:
    """The command that removes what an owner has; MPS is never the driver by default."""
    driver = f" --driver {gpu.driver}" if gpu.driver == Driver.MPS else ""
    return f"migrator gpu clear --owner {owner}{driver}"


def planned(
    board: Board,
    present: Sequence[GpuInstance],
    ours: Collection[Place],
    wanted: Layout,
    *,
    remedy: Callable[[GpuInstance], str] | None = None,
) -> tuple[Step, ...]:
    """The fewest steps to `wanted`, destroys first; BlockedError, InputError.

    `remedy` says what to do about an instance that is not ours, for who will read the error.
    """
    situation = _Situation(board, present, ours, wanted)
    best: Places = ()
    best_cost: tuple[int, int, int, Places] | None = None
    for places in laid(board, wanted):
        cost = situation.cost(places)
        if best_cost is None or cost < best_cost:
            best, best_cost = places, cost
    blockers = situation.blockers(set(best))
    if blockers:
        raise BlockedError(_sentence(blockers, ours, remedy), blockers)
    return situation.steps(set(best))


class _Situation:
    """The board as a change finds it: what can move, what cannot, what a layout would cost."""

    def __init__(
        self,
        board: Board,
        present: Sequence[GpuInstance],
        ours: Collection[Place],
        wanted: Layout,
    ) -> None:
        there = {each.place for each in present}
        self._bits = {place: slices(board, place) for place in there.union(places_of(board))}
        self._weights = {each.name: _weight(each) for each in board.profiles}
        mine = [each for each in present if each.place in ours]
        self._movable = {each.place: each for each in mine if not each.holders}
        self._whole = {place for place, each in self._movable.items() if each.uuid}
        self._in_use = {each.place: each for each in mine if each.holders}
        self._foreign = {each.place: each for each in present if each.place not in ours}
        self._room = _room_beside(board, wanted)

    def cost(self, places: Places) -> tuple[int, int, int, Places]:
        """Blockers, steps, then what is preferred among equals: the smaller the better."""
        wanted = set(places)
        blockers = len(self.blockers(wanted)) if self._in_use or self._foreign else 0
        kept = len(self._whole & wanted)
        there = kept + len(self._in_use.keys() & wanted) + len(self._foreign.keys() & wanted)
        steps = len(self._movable) - kept + len(wanted) - there
        weight = sum(self._weights[place.profile] * place.start for place in places)
        return blockers, steps, weight, places

    def steps(self, wanted: set[Place]) -> tuple[Step, ...]:
        """Destroys of ours that are not wanted or half-made, creates of what is missing."""
        kept = self._whole & wanted
        there = kept | self._in_use.keys() | self._foreign.keys()
        return (
            *(Step(Op.DESTROY, place) for place in sorted(self._movable.keys() - kept)),
            *(Step(Op.CREATE, place) for place in sorted(wanted - there)),
        )

    def blockers(self, wanted: set[Place]) -> tuple[GpuInstance, ...]:
        """What cannot move and cannot stay beside `wanted`, by start."""
        blocking = [each for place, each in self._in_use.items() if place not in wanted]
        if self._foreign:
            blocking += self._foreign_blockers(wanted)
        return tuple(sorted(blocking, key=lambda each: each.place))

    def _foreign_blockers(self, wanted: set[Place]) -> list[GpuInstance]:
        """Those that overlap, are half-made where one is wanted, or use up their kind."""
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
    """What a higher start costs, or gains."""
    better_high = profile.gpcs in BETTER_HIGH_GPCS
    return -profile.memory_slices if better_high else profile.memory_slices


def _room_beside(board: Board, wanted: Layout) -> dict[str, int]:
    """How many of each MIG profile the board can have beside the wanted ones."""
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
