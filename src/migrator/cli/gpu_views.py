"""A GPU and its instances for the terminal: a drawing of the slices, tables, steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from migrator.core.catalogue import Board, MigProfile
from migrator.core.errors import InputError
from migrator.core.placement import Place
from migrator.gpu.drivers.base import DriverKind, Gpu, GpuInstance
from migrator.gpu.partition.layout import Layout, arrangements

if TYPE_CHECKING:
    from migrator.core.placement import Place
    from migrator.gpu.drivers.base import Gpu, GpuInstance


_NARROWEST = 6
"""Minimum width of a memory slice in columns."""

Owners = Mapping[Place, str]
"""Owners of the instances that are in the journal."""


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
    """The memory slices from left to right with the instances on them."""
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
    """One line per instance: start, profile, owner, processes, UUID."""
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
    """The board's MIG profiles and where each still fits."""
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
    """The starts at which one more instance of the profile fits beside the existing ones."""
    there = tuple(each.place for each in instances)
    wanted = [Place(start, profile.name) for start in sorted(profile.starts)]
    return tuple(each.start for each in wanted if _possible(board, Layout((*there, each))))


def _possible(board: Board, layout: Layout) -> bool:
    try:
        next(arrangements(board, layout))
    except InputError:
        return False
    return True


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns are as wide as their widest cell."""
    lines = [head, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


Row = dict[str, Any]
Environments = dict["GpuInstance", dict[str, str] | None]


def gpu_json(gpu: Gpu, instances: tuple[GpuInstance, ...]) -> Row:
    """A GPU and its instances as JSON."""
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "board": gpu.board.name,
        "driver": gpu.driver,
        "driver_version": gpu.driver_version,
        "mig_mode": gpu.divides and gpu.driver != DriverKind.MPS,
        "instances": [_instance_json(gpu, each) for each in instances],
    }


def shown_json(
    gpu: Gpu,
    instances: tuple[GpuInstance, ...],
    owners: dict[Place, str],
    environments: Environments,
) -> Row:
    """The same with the owner and worker environment of every instance, and the profiles that
    fit."""
    row = gpu_json(gpu, instances)
    row["instances"] = [
        told | {"owner": owners.get(each.place), "environment": environments[each]}
        for told, each in zip(row["instances"], instances, strict=True)
    ]
    return row | {"profiles": _profiles_json(gpu, instances)}


def _instance_json(gpu: Gpu, instance: GpuInstance) -> Row:
    place = instance.place
    return {
        "start": place.start,
        "gpcs": gpu.board.profile(place.profile).gpcs,
        "profile": place.profile,
        "number": instance.number,
        "uuid": instance.uuid,
        "holders": [asdict(each) for each in instance.holders],
    }


def _profiles_json(gpu: Gpu, instances: tuple[GpuInstance, ...]) -> list[Row]:
    from migrator.cli.gpu_views import room

    return [
        {
            "profile": each.name,
            "gpcs": each.gpcs,
            "sms": each.sms,
            "memory_gib": each.memory_gib,
            "starts": list(each.starts),
            "fits_at": list(room(gpu.board, instances, each)),
        }
        for each in gpu.board.profiles
    ]
