"""The wanted division of a GPU, and all its arrangements on an empty board.

Pure. `steps` selects the arrangement that takes the fewest steps from the present instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.core.catalogue import Board, MigProfile
from migrator.core.errors import InputError
from migrator.core.placement import Place, place_mask, require_start, slice_mask
from migrator.gpu.drivers.base import GpuInstance

Places = tuple[Place, ...]


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
        key=lambda each: (-each[0].memory_slices, each[0].name),
    )
    found = False
    for chosen in _choices(open_ones, taken):
        found = True
        yield layout.places + chosen
    if not found:
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
            other = next(each for each in places[:index] if place_mask(board, each) & bits)
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

    def words(self) -> list[str]:
        """One line per difference."""
        return [
            *(f"missing: {each}" for each in self.missing),
            *(f"missing: {count} of {profile}, anywhere" for profile, count in self.fewer.items()),
            *(f"not in the layout: {each.place}" for each in self.unexpected),
            *(f"without compute instance: {each.place}" for each in self.half_made),
        ]


def difference(present: Sequence[GpuInstance], wanted: Layout) -> Difference:
    """The differences between the present instances and the wanted layout."""
    places = {each.place for each in present}
    left = Counter({profile: count for profile, count in wanted.counts.items() if count})
    unexpected = []
    for each in sorted(present, key=lambda one: one.place):
        if each.place in wanted.places:
            continue
        if left[each.place.profile] > 0:
            left[each.place.profile] -= 1
        else:
            unexpected.append(each)
    return Difference(
        missing=tuple(sorted(each for each in wanted.places if each not in places)),
        fewer={profile: count for profile, count in left.items() if count},
        unexpected=tuple(unexpected),
        half_made=tuple(each for each in present if each.uuid is None and each not in unexpected),
    )
