"""The wanted division of a GPU, and the fewest destroys and creates from the present instances.

No step touches an instance that is not ours or that is in use. `partitioner` runs the steps.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from migrator.core.catalogue import (
    Board,
    MigProfile,
    Place,
    all_places,
    place_mask,
    require_start,
    slice_mask,
)
from migrator.core.errors import GpuError, InputError
from migrator.gpu.drivers.base import DriverKind, Gpu, GpuInstance
from migrator.io.folders import state_option

Places = tuple[Place, ...]
BETTER_HIGH_GPCS = (1, 3)
"""Sizes in GPCs that leave more space for other instances at high starts."""


@dataclass(frozen=True)
class Layout:
    """Instances at fixed starts, and a number of instances per MIG profile without fixed starts."""

    places: Places = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def amounts(self) -> Counter[str]:
        """Total number of instances of each MIG profile."""
        return Counter(place.profile for place in self.places) + Counter(self.counts)


def arrangements(board: Board, layout: Layout) -> Iterator[Places]:
    """All sets of places that satisfy `layout` on the empty board. InputError if there is none."""
    taken = _check_places(board, layout.places)
    _check_amounts(board, layout)
    # Wide instances first: they have the fewest starts, so that a dead branch ends early.
    open_ones = sorted(
        ((board.profile(name), count) for name, count in layout.counts.items() if count),
        key=lambda item: (-item[0].memory_slices, item[0].name),
    )
    is_possible = False
    for chosen in _choices(open_ones, taken):
        is_possible = True
        yield layout.places + chosen
    if not is_possible:
        raise InputError(
            f"{_amounts_in_words(layout)} do not fit on {board.name} together; leave one out or "
            "take a smaller MIG profile"
        )


def _choices(open_ones: list[tuple[MigProfile, int]], taken: int) -> Iterator[Places]:
    if not open_ones:
        yield ()
        return
    (profile, count), *rest = open_ones
    for chosen, then_taken in _starts(profile, profile.starts, count, taken):
        for others in _choices(rest, then_taken):
            yield chosen + others


def _starts(
    profile: MigProfile, starts: tuple[int, ...], count: int, taken: int
) -> Iterator[tuple[Places, int]]:
    if not count:
        yield (), taken
        return
    for index, start in enumerate(starts):
        bits = slice_mask(start, profile.memory_slices)
        if bits & taken:
            continue
        place = Place(start, profile.name)
        for others, all_taken in _starts(profile, starts[index + 1 :], count - 1, taken | bits):
            yield (place, *others), all_taken


def _check_amounts(board: Board, layout: Layout) -> None:
    for name, count in layout.counts.items():
        if count < 0:
            raise InputError(f"{count} instances of {name} cannot be had; give 0 or more")
    gpcs = 0
    for name, count in layout.amounts.items():
        profile = board.profile(name)
        gpcs += count * profile.gpcs
        if count > profile.max_instances:
            raise InputError(
                f"the layout has {count} instances of {name} and {board.name} has room for "
                f"{profile.max_instances}; ask for fewer"
            )
    if gpcs > board.compute_slices:
        raise InputError(
            f"{_amounts_in_words(layout)} take {gpcs} GPCs and {board.name} has "
            f"{board.compute_slices}; leave one out or take a smaller MIG profile"
        )


def _check_places(board: Board, places: Places) -> int:
    taken = 0
    for index, place in enumerate(places):
        require_start(board, place)
        bits = place_mask(board, place)
        if bits & taken:
            other = next(place for place in places[:index] if place_mask(board, place) & bits)
            raise InputError(
                f"{other} and {place} overlap on {board.name}; move one of them or leave it out"
            )
        taken |= bits
    return taken


def _amounts_in_words(layout: Layout) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(layout.amounts.items()))


@dataclass(frozen=True)
class Difference:
    """Missing, superfluous and unusable instances."""

    missing: tuple[Place, ...]
    fewer: Mapping[str, int]
    """MIG profile -> number of missing instances without a fixed start."""
    unexpected: tuple[GpuInstance, ...]
    half_made: tuple[GpuInstance, ...]

    def __bool__(self) -> bool:
        return bool(self.missing or self.fewer or self.unexpected or self.half_made)

    def lines(self) -> list[str]:
        return [
            *(f"missing: {place}" for place in self.missing),
            *(f"missing: {count} of {profile}, anywhere" for profile, count in self.fewer.items()),
            *(f"not in the layout: {instance.place}" for instance in self.unexpected),
            *(f"without compute instance: {instance.place}" for instance in self.half_made),
        ]


def difference(present: Sequence[GpuInstance], wanted: Layout) -> Difference:
    """The differences between the present instances and the wanted layout."""
    places = {instance.place for instance in present}
    left = Counter({profile: count for profile, count in wanted.counts.items() if count})
    unexpected = []
    for instance in sorted(present, key=lambda instance: instance.place):
        if instance.place in wanted.places:
            continue
        if left[instance.place.profile] > 0:
            left[instance.place.profile] -= 1
        else:
            unexpected.append(instance)
    return Difference(
        missing=tuple(sorted(place for place in wanted.places if place not in places)),
        fewer={profile: count for profile, count in left.items() if count},
        unexpected=tuple(unexpected),
        half_made=tuple(
            instance for instance in present if instance.uuid is None and instance not in unexpected
        ),
    )


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


def gpu_command(verb: str, gpu: Gpu, state: Path) -> str:
    """`migrator gpu VERB` for this GPU and state folder, whatever the defaults are."""
    return f"migrator gpu {verb} --driver {gpu.driver} --gpu {gpu.index}{state_option(state)}"


def clear_command(gpu: Gpu, owner: str, state: Path) -> str:
    """The command that removes an owner's instances."""
    return gpu_command(f"clear --owner {shlex.quote(owner)}", gpu, state)


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
    transition = _LayoutTransition(board, present, ours, wanted)
    best: Places = ()
    best_cost: tuple[int, int, int, Places] | None = None
    for places in arrangements(board, wanted):
        cost = transition.cost(places)
        if best_cost is None or cost < best_cost:
            best, best_cost = places, cost
    blockers = transition.blockers(set(best))
    if blockers:
        sentences = [
            _describe_blocker(blocker, blocker.place in ours, remedy) for blocker in blockers
        ]
        raise BlockedError("; ".join(sentences), blockers)
    return transition.steps(set(best))


class _LayoutTransition:
    """The board before a change: movable and fixed instances, and the cost of a layout."""

    def __init__(
        self,
        board: Board,
        present: Sequence[GpuInstance],
        ours: Collection[Place],
        wanted: Layout,
    ) -> None:
        there = {instance.place for instance in present}
        self._bits = {place: place_mask(board, place) for place in there.union(all_places(board))}
        self._weights = {profile.name: _weight(profile) for profile in board.profiles}
        mine = [instance for instance in present if instance.place in ours]
        self._movable = {instance.place: instance for instance in mine if not instance.holders}
        self._whole = {place for place, instance in self._movable.items() if instance.uuid}
        self._in_use = {instance.place: instance for instance in mine if instance.holders}
        self._foreign = {
            instance.place: instance for instance in present if instance.place not in ours
        }
        amounts = wanted.amounts
        self._room = {
            profile.name: profile.max_instances - amounts[profile.name]
            for profile in board.profiles
        }
        """How many more instances of each MIG profile the board allows beside the wanted ones."""

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
        blocking = [instance for place, instance in self._in_use.items() if place not in wanted]
        if self._foreign:
            blocking += self._foreign_blockers(wanted)
        return tuple(sorted(blocking, key=lambda instance: instance.place))

    def _foreign_blockers(self, wanted: set[Place]) -> list[GpuInstance]:
        """Instances that overlap, are incomplete at a wanted place, or exhaust their profile."""
        taken = sum(self._bits[place] for place in wanted)
        beside = Counter(place.profile for place in self._foreign if place not in wanted)
        return [
            instance
            for place, instance in self._foreign.items()
            if (
                instance.uuid is None
                if place in wanted
                else self._bits[place] & taken or beside[place.profile] > self._room[place.profile]
            )
        ]


def _weight(profile: MigProfile) -> int:
    """Cost of a higher start; negative if it is a gain."""
    better_high = profile.gpcs in BETTER_HIGH_GPCS
    return -profile.memory_slices if better_high else profile.memory_slices


def _describe_blocker(
    instance: GpuInstance, ours: bool, remedy: Callable[[GpuInstance], str] | None
) -> str:
    if ours:
        holders = ", ".join(map(str, instance.holders))
        return f"{instance.place} is in the way and in use by {holders}: end that or wait"
    half = "" if instance.uuid else ", has no compute instance"
    then = f": {remedy(instance)}" if remedy else ""
    return f"{instance.place} is in the way{half} and is not ours{then}"
