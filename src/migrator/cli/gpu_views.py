"""A GPU and its instances for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from migrator.core.catalogue import Board, MigProfile
from migrator.core.errors import InputError
from migrator.core.placement import Place
from migrator.gpu.drivers.base import DriverKind, Gpu, GpuInstance
from migrator.gpu.layout import Layout, arrangements
from migrator.report.page import Slab, Use
from migrator.report.terminal import aligned, slices_text

Row = dict[str, Any]
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
    slabs = [
        Slab(
            None,
            Use.SERVING,
            "",
            each.place.start,
            board.profile(each.place.profile).memory_slices,
            0.0,
            1.0,
            each.place.profile,
        )
        for each in instances
    ]
    return slices_text(slabs, board.memory_slices, widest=100)


def instance_table(instances: Sequence[GpuInstance], owners: Owners) -> str:
    """One line per instance: start, profile, owner, processes, UUID."""
    rows = [
        (
            str(each.place.start),
            each.place.profile,
            owners.get(each.place, "not ours"),
            ", ".join(map(str, each.holders)) or "none",
            each.uuid or "none: no compute instance",
        )
        for each in instances
    ]
    return aligned([("at", "profile", "owner", "used by", "uuid"), *rows], words=5)


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
    return aligned([("MIG profile", "GPCs", "SMs", "GiB", "fits at"), *rows], words=5)


def room(board: Board, instances: Sequence[GpuInstance], profile: MigProfile) -> tuple[int, ...]:
    """The starts at which one more instance of the profile fits beside the existing ones."""
    there = tuple(each.place for each in instances)

    def fits(start: int) -> bool:
        try:
            next(arrangements(board, Layout((*there, Place(start, profile.name)))))
        except InputError:
            return False
        return True

    return tuple(filter(fits, sorted(profile.starts)))


def gpu_json(gpu: Gpu, instances: Sequence[GpuInstance]) -> Row:
    """A GPU and its instances as JSON."""
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "board": gpu.board.name,
        "driver": gpu.driver,
        "driver_version": gpu.driver_version,
        "mig_mode": gpu.divides and gpu.driver != DriverKind.MPS,
        "instances": [
            {
                "start": each.place.start,
                "gpcs": gpu.board.profile(each.place.profile).gpcs,
                "profile": each.place.profile,
                "number": each.number,
                "uuid": each.uuid,
                "holders": [asdict(holder) for holder in each.holders],
            }
            for each in instances
        ],
    }


def shown_json(
    gpu: Gpu,
    instances: Sequence[GpuInstance],
    owners: Owners,
    environments: Mapping[GpuInstance, dict[str, str] | None],
) -> Row:
    """The same with the owner and worker environment of every instance, and the profiles that
    fit."""
    row = gpu_json(gpu, instances)
    for shown, each in zip(row["instances"], instances, strict=True):
        shown |= {"owner": owners.get(each.place), "environment": environments[each]}
    row["profiles"] = [
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
    return row
