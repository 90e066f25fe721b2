"""GPU boards: MIG profiles with their memory, SMs and possible starts.

The packaged catalogue is for planning without a GPU; a driver builds the same `Board` from NVML.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

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
            known = plain.get(profile.gpcs)
            if known is None or profile.memory_slices < known.memory_slices:
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
        """The SMs of an instance of `gpcs` GPCs."""
        sms = self.plain_profiles[gpcs].sms
        if sms is None:
            raise InputError(
                f"gpu: the number of SMs of a {gpcs}-GPC instance of {self.name} is not "
                "published; use a board for which `migrator boards NAME` shows it"
            )
        return sms

    def profile(self, name: str) -> MigProfile:
        """The profile called `name`, e.g. "1g.10gb+me"."""
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
    if name.endswith(_SHARES):
        return shares_of(board(name.removesuffix(_SHARES)))
    known = boards()
    if name in known:
        return known[name]
    folded = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.4)
    hint = " or ".join(folded[each] for each in near) or ", ".join(known)
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


def _board(name: str, entry: dict[str, object]) -> Board:
    raw = entry["profiles"]
    assert isinstance(raw, list)
    profiles = tuple(
        MigProfile(
            name=each["name"],
            gpcs=each["compute_slices"],
            memory_slices=each["memory_slices"],
            max_instances=each["max_instances"],
            starts=tuple(each["starts"]),
            memory_gib=each["memory_gib"],
            sms=each["sms"],
            nvml_enum=each["nvml_enum"],
            profile_id=each["profile_id"],
        )
        for each in raw
    )
    compute, memory = entry["compute_slices"], entry["memory_slices"]
    assert isinstance(compute, int)
    assert isinstance(memory, int)
    return Board(name, compute, memory, profiles)
