"""GPU boards: MIG profiles with their memory, SMs and possible starts, and where instances fit.

The packaged catalogue is for planning without a GPU; a driver builds the same `Board` from NVML.

This is the only module that computes with memory slices. An instance occupies consecutive memory
slices; two coexist if their slices do not overlap. A `Placement` has a size that plans use; a
`Place` has any MIG profile that a driver can create. Everything is derived from the catalogue, for
any board: placement sets, the maximal ones, the multisets of their sizes, and the configurations,
which are the multisets contained in no other (the paper's 12 on an A100).
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from migrator.core.errors import InputError

_CLUSTERED = re.compile(r"\b(G?[HB]\d+|Blackwell)\b")
"""Matches the names of GPUs since Hopper, which have clusters of SMs."""
_SHARES = "-MPS"
"""Ends the name of a board that MPS divides."""


@dataclass(frozen=True)
class MigProfile:
    """A MIG profile, e.g. 3g.20gb. `None`: not published."""

    name: str
    gpcs: int
    memory_slices: int
    max_instances: int
    starts: tuple[int, ...]
    memory_gib: float | None
    sms: int | None
    nvml_enum: int | None
    profile_id: int | None

    @property
    def has_suffix(self) -> bool:
        """True for media, graphics and other attribute variants (+me, +gfx, -me, ...)."""
        return "+" in self.name or "-" in self.name


@dataclass(frozen=True)
class Board:
    """A GPU model: its slices and MIG profiles."""

    name: str
    compute_slices: int
    memory_slices: int
    profiles: tuple[MigProfile, ...]

    @cached_property
    def plain_profiles(self) -> dict[int, MigProfile]:
        """GPCs -> the profile that plans use: no suffix, least memory of that size."""
        plain: dict[int, MigProfile] = {}
        for profile in self.profiles:
            if profile.has_suffix:
                continue
            other = plain.get(profile.gpcs)
            if other is None or profile.memory_slices < other.memory_slices:
                plain[profile.gpcs] = profile
        return dict(sorted(plain.items()))

    @property
    def is_of_shares(self) -> bool:
        """Whether MPS divides it instead of MIG."""
        return self.name.endswith(_SHARES)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The instance sizes in GPCs that plans may use, ascending."""
        return tuple(self.plain_profiles)

    @property
    def sms(self) -> int:
        """The SMs of the whole board, as its largest instance has them."""
        return self.sms_of(self.sizes[-1])

    def memory_mib_of(self, gpcs: int) -> float:
        """The memory of an instance of `gpcs` GPCs; infinite where it is not published."""
        memory_gib = self.plain_profiles[gpcs].memory_gib
        return math.inf if memory_gib is None else 1024 * memory_gib

    def sms_of(self, gpcs: int) -> int:
        sms = self.plain_profiles[gpcs].sms
        if sms is None:
            raise InputError(
                f"gpu: the number of SMs of a {gpcs}-GPC instance of {self.name} is not "
                "published; use a board for which `migrator boards NAME` shows it"
            )
        return sms

    def profile(self, name: str) -> MigProfile:
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise InputError(
            f"{self.name} has no MIG profile {name!r}; it has "
            f"{', '.join(profile.name for profile in self.profiles)}"
        )


def has_clusters(name: str) -> bool:
    """Whether the GPU or board of this name has clusters of SMs, as all do since Hopper."""
    return _CLUSTERED.search(name) is not None


@cache
def boards() -> dict[str, Board]:
    """Every packaged board by name."""
    text = files("migrator.core").joinpath("boards.json").read_text(encoding="utf-8")
    return {name: _board(name, entry) for name, entry in json.loads(text)["boards"].items()}


def board(name: str) -> Board:
    """The packaged board called `name`; InputError suggests the nearest names.

    With `-MPS` after its name: the same GPU divided by MPS.
    """
    whole = name.removesuffix(_SHARES)
    if whole != name and not whole.endswith(_SHARES):
        return shares_of(board(whole))
    packaged = boards()
    if name in packaged:
        return packaged[name]
    folded = {spelling.lower(): spelling for spelling in packaged}
    near = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.4)
    hint = " or ".join(folded[spelling] for spelling in near) or ", ".join(packaged)
    raise InputError(f"gpu: unknown board {name!r}; use {hint} (`migrator boards` lists all)")


@cache
def shares_of(whole: Board) -> Board:
    """The board as MPS can divide it.

    A slice has the SMs of the smallest MIG instance, shares are powers of two of a slice or the
    whole GPU, and they may begin anywhere. An H200 has eight slices instead of seven.
    """
    if not has_clusters(whole.name):
        raise InputError(
            f"gpu: {whole.name}{_SHARES} would have no more slices than {whole.name}; name that"
        )
    smallest, largest = (whole.plain_profiles[size] for size in (whole.sizes[0], whole.sizes[-1]))
    slices = whole.sms // whole.sms_of(smallest.gpcs)
    each_gib = None if largest.memory_gib is None else largest.memory_gib / slices

    def share(size: int) -> MigProfile:
        memory_gib = None if each_gib is None else each_gib * size
        return MigProfile(
            name=f"{size}g" if memory_gib is None else f"{size}g.{int(memory_gib)}gb",
            gpcs=size,
            memory_slices=size,
            max_instances=slices // size,
            starts=tuple(range(slices - size + 1)),
            memory_gib=memory_gib,
            sms=whole.sms if size == slices else size * whole.sms_of(smallest.gpcs),
            nvml_enum=None,
            profile_id=None,
        )

    sizes = [1 << power for power in range(slices.bit_length()) if 1 << power < slices]
    shares = tuple(share(size) for size in (*sizes, slices))
    return Board(f"{whole.name}{_SHARES}", slices, slices, shares)


def _board(name: str, entry: Mapping[str, Any]) -> Board:
    profiles = tuple(
        MigProfile(
            gpcs=profile.pop("compute_slices"), starts=tuple(profile.pop("starts")), **profile
        )
        for profile in entry["profiles"]
    )
    return Board(name, entry["compute_slices"], entry["memory_slices"], profiles)


Multiset = tuple[int, ...]
"""Instance sizes in GPCs, descending: (3, 2, 1, 1)."""


def slice_mask(start: int, width: int) -> int:
    """`width` memory slices from `start` on, as bits."""
    return ((1 << width) - 1) << start


@dataclass(frozen=True, order=True)
class Place:
    """The first memory slice of an instance and the name of its MIG profile."""

    start: int
    profile: str

    def __str__(self) -> str:
        return f"{self.profile} at {self.start}"


def place_mask(board: Board, place: Place) -> int:
    """The memory slices of a place as bits."""
    return slice_mask(place.start, board.profile(place.profile).memory_slices)


def all_places(board: Board) -> Iterator[Place]:
    """Every place on the board, of every MIG profile."""
    return (Place(start, profile.name) for profile in board.profiles for start in profile.starts)


def require_start(board: Board, place: Place) -> None:
    """Raise InputError if the board has no such place."""
    profile = board.profile(place.profile)
    if place.start not in profile.starts:
        raise InputError(
            f"{place.profile} cannot start at {place.start} on {board.name}; it can at "
            f"{', '.join(map(str, sorted(profile.starts)))}"
        )


def conflict(board: Board, present: Collection[Place], place: Place) -> str | None:
    """Why `place` does not fit beside `present`, or None; InputError if the board has no such
    place."""
    require_start(board, place)
    profile = board.profile(place.profile)
    for instance in present:
        if place_mask(board, instance) & place_mask(board, place):
            return f"it overlaps {instance}"
    if (
        sum(board.profile(other.profile).gpcs for other in present) + profile.gpcs
        > board.compute_slices
    ):
        return f"the {board.compute_slices} compute slices of the GPU are not enough for both"
    if sum(other.profile == place.profile for other in present) >= profile.max_instances:
        return f"a {board.name} has at most {profile.max_instances} instances of that profile"
    return None


def board_without(board: Board, places: Collection[Place]) -> Board:
    """The board without the starts whose slices `places` occupy."""
    taken = 0
    for place in places:
        taken |= place_mask(board, place)

    def is_free(start: int, width: int) -> bool:
        return not slice_mask(start, width) & taken

    profiles = tuple(
        replace(
            profile, starts=tuple(s for s in profile.starts if is_free(s, profile.memory_slices))
        )
        for profile in board.profiles
    )
    return replace(board, profiles=profiles) if places else board


@dataclass(frozen=True, order=True)
class Placement:
    """An instance of `gpcs` GPCs on the memory slices `start` to `start + width - 1`."""

    start: int
    gpcs: int
    width: int

    @property
    def mask(self) -> int:
        return slice_mask(self.start, self.width)

    def overlaps(self, other: Placement) -> bool:
        return bool(self.mask & other.mask)


PlacementSet = tuple[Placement, ...]


@cache
def placements(board: Board) -> tuple[Placement, ...]:
    """Every placement of the board's plain sizes, by size and start."""
    return tuple(
        Placement(start, gpcs, profile.memory_slices)
        for gpcs, profile in board.plain_profiles.items()
        for start in sorted(profile.starts)
    )


def find_placement(board: Board, start: int, gpcs: int) -> Placement | None:
    """The placement of that size at that start; None if the board has none."""
    for placement in placements(board):
        if placement.start == start and placement.gpcs == gpcs:
            return placement
    return None


@cache
def placement_sets(board: Board) -> tuple[PlacementSet, ...]:
    """Every non-empty set of placements that can exist at once."""
    placementses: list[PlacementSet] = []

    def extend(chosen: PlacementSet, mask: int, candidates: tuple[Placement, ...]) -> None:
        for index, candidate in enumerate(candidates):
            if candidate.mask & mask:
                continue
            bigger = (*chosen, candidate)
            if sum(placement.gpcs for placement in bigger) > board.compute_slices:
                continue
            placementses.append(bigger)
            extend(bigger, mask | candidate.mask, candidates[index + 1 :])

    extend((), 0, placements(board))
    return tuple(placementses)


@cache
def maximal_placement_sets(board: Board) -> tuple[PlacementSet, ...]:
    """The placement sets to which no placement can be added."""
    as_sets = {chosen: frozenset(chosen) for chosen in placement_sets(board)}
    return tuple(
        chosen
        for chosen, places in as_sets.items()
        if not any(places < other for other in as_sets.values())
    )


def multiset_of(chosen: PlacementSet) -> Multiset:
    """The sizes of a placement set, descending."""
    return tuple(sorted((placement.gpcs for placement in chosen), reverse=True))


@cache
def multisets(board: Board) -> tuple[Multiset, ...]:
    """Every multiset of sizes of a placement set, largest first."""
    return tuple(sorted({multiset_of(chosen) for chosen in placement_sets(board)}, reverse=True))


@cache
def configurations(board: Board) -> tuple[Multiset, ...]:
    """The multisets contained in no other: the paper's configurations."""
    counters = {multiset: Counter(multiset) for multiset in multisets(board)}
    return tuple(
        multiset
        for multiset, count in counters.items()
        if not any(other != multiset and count <= counters[other] for other in counters)
    )
