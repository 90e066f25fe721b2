"""What a GPU should be divided into, and every way to lay it on an empty board.

Pure. `change` picks the way that is reached with the fewest steps from what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from migrator.core.catalogue import Board, MigProfile
from migrator.core.errors import InputError
from migrator.gpu.driver import Place

Places = tuple[Place, ...]


@dataclass(frozen=True)
class Layout:
    """Instances at given starts, and so many of a MIG profile wherever they fit best."""

    places: Places = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def amounts(self) -> Counter[str]:
        """How many instances of each MIG profile there are in all."""
        return Counter(place.profile for place in self.places) + Counter(self.counts)


def slices(board: Board, place: Place) -> int:
    """The memory slices of a place as bits."""
    return _bits(board.profile(place.profile), place.start)


def check_start(board: Board, place: Place) -> None:
    """InputError where a place can never be on the board."""
    profile = board.profile(place.profile)
    if place.start not in profile.starts:
        raise InputError(
            f"{place.profile} cannot start at {place.start} on {board.name}; it can at "
            f"{', '.join(map(str, sorted(profile.starts)))}"
        )


def places_of(board: Board) -> Iterator[Place]:
    """Every place on the board, of every MIG profile."""
    return (Place(start, each.name) for each in board.profiles for start in each.starts)


def laid(board: Board, layout: Layout) -> Iterator[Places]:
    """Every set of places that is `layout` on the empty board; InputError where there is none."""
    taken = _check_places(board, layout.places)
    _check_amounts(board, layout)
    # wide ones first: they have the fewest starts, and a branch that leads nowhere ends early
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


def _bits(profile: MigProfile, start: int) -> int:
    return ((1 << profile.memory_slices) - 1) << start


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
        bits = _bits(profile, start)
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
        check_start(board, place)
        bits = slices(board, place)
        if bits & taken:
            other = next(each for each in places[:index] if slices(board, each) & bits)
            raise InputError(
                f"{other} and {place} overlap on {board.name}; move one of them or leave it out"
            )
        taken |= bits
    return taken


def _amounts_in_words(layout: Layout) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(layout.amounts.items()))
