"""A GPU and its instances for the terminal: slices drawn, tables, steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from migrator.core.catalogue import Board, MigProfile
from migrator.core.errors import InputError
from migrator.gpu.driver import Gpu, GpuInstance, Place
from migrator.gpu.layout import Layout, laid

_NARROWEST = 6
"""Columns of a memory slice."""

Owners = Mapping[Place, str]
"""Whose the instances are that the journal knows."""


def heading(driver: str, gpu: Gpu) -> str:
    """The GPU and its driver."""
    version = "" if gpu.driver_version == driver else f" {gpu.driver_version}"
    mode = "on" if gpu.divides else "off: no instance can be created"
    if driver == "mps":
        mode = "off: instances are MPS shares"
    return (
        f"GPU {gpu.index}  {gpu.board.name}  {gpu.name}  {gpu.uuid}\n"
        f"driver {driver}{version}, MIG mode {mode}"
    )


def slices(board: Board, instances: Sequence[GpuInstance]) -> str:
    """The memory slices from left to right and what sits on them."""
    widths = {each: board.profile(each.place.profile).memory_slices for each in instances}
    needed = [-(-(len(each.place.profile) + 2) // width) for each, width in widths.items()]
    columns = max([_NARROWEST, *needed])
    row = "." * (columns * board.memory_slices)
    for each, width in widths.items():
        at, long = each.place.start * columns, width * columns
        row = row[:at] + f"[{each.place.profile:^{long - 2}}]" + row[at + long :]
    numbers = "".join(f"{each:^{columns}}" for each in range(board.memory_slices))
    return f"slice {numbers.rstrip()}\n      {row}"


def instance_table(instances: Sequence[GpuInstance], owners: Owners) -> str:
    """One line per instance: where, what, whose, used by whom, its UUID."""
    rows = [
        (
            str(each.place.start),
            each.place.profile,
            owners.get(each.place, "not ours"),
            ", ".join(map(str, each.holders)) or "nobody",
            each.uuid or "none: no compute instance",
        )
        for each in instances
    ]
    return table(("at", "profile", "whose", "used by", "uuid"), rows)


def profile_table(board: Board, instances: Sequence[GpuInstance]) -> str:
    """The board's MIG profiles and where each would still fit."""
    rows = [
        (
            each.name,
            str(each.gpcs),
            "?" if each.sms is None else str(each.sms),
            "?" if each.memory_gib is None else f"{each.memory_gib:g}",
            " ".join(map(str, room(board, instances, each))) or "nowhere",
        )
        for each in board.profiles
    ]
    return table(("MIG profile", "GPCs", "SMs", "GiB", "fits at"), rows)


def room(board: Board, instances: Sequence[GpuInstance], profile: MigProfile) -> tuple[int, ...]:
    """The starts at which one more instance of the profile would fit beside those there are."""
    there = tuple(each.place for each in instances)
    wanted = [Place(start, profile.name) for start in sorted(profile.starts)]
    return tuple(each.start for each in wanted if _possible(board, Layout((*there, each))))


def _possible(board: Board, layout: Layout) -> bool:
    try:
        next(laid(board, layout))
    except InputError:
        return False
    return True


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    lines = [head, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
