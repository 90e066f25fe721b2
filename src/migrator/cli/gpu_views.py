"""What `migrator gpu` prints of a GPU: text and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from migrator.core.errors import InputError
from migrator.gpu.drivers.base import DriverKind

if TYPE_CHECKING:
    from migrator.core.catalogue import Board, MigProfile, Place
    from migrator.gpu.drivers.base import Gpu, GpuInstance

Row = dict[str, Any]
Owners = Mapping["Place", str]
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
    from migrator.report.page import Slab, Use
    from migrator.report.terminal import slices_text

    slabs = [
        Slab(
            None,
            Use.SERVING,
            "",
            instance.place.start,
            board.profile(instance.place.profile).memory_slices,
            0.0,
            1.0,
            instance.place.profile,
        )
        for instance in instances
    ]
    return slices_text(slabs, board.memory_slices, widest=100)


def instance_table(instances: Sequence[GpuInstance], owners: Owners) -> str:
    """One line per instance: start, profile, owner, processes, UUID."""
    from migrator.report.terminal import aligned

    rows = [
        (
            str(instance.place.start),
            instance.place.profile,
            owners.get(instance.place, "not ours"),
            ", ".join(map(str, instance.holders)) or "none",
            instance.uuid or "none: no compute instance",
        )
        for instance in instances
    ]
    return aligned([("at", "profile", "owner", "used by", "uuid"), *rows], text_columns=5)


def profile_table(board: Board, instances: Sequence[GpuInstance]) -> str:
    """The board's MIG profiles and where each still fits."""
    from migrator.report.terminal import aligned

    rows = [
        (
            profile.name,
            str(profile.gpcs),
            "?" if profile.sms is None else str(profile.sms),
            "?" if profile.memory_gib is None else f"{profile.memory_gib:g}",
            " ".join(map(str, room(board, instances, profile))) or "nowhere",
        )
        for profile in board.profiles
    ]
    return aligned([("MIG profile", "GPCs", "SMs", "GiB", "fits at"), *rows], text_columns=5)


def room(board: Board, instances: Sequence[GpuInstance], profile: MigProfile) -> tuple[int, ...]:
    """The starts at which one more instance of the profile fits beside the existing ones."""
    from migrator.core.catalogue import Place
    from migrator.gpu.layout import Layout, arrangements

    places = tuple(instance.place for instance in instances)

    def fits(start: int) -> bool:
        try:
            next(arrangements(board, Layout((*places, Place(start, profile.name)))))
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
                "start": instance.place.start,
                "gpcs": gpu.board.profile(instance.place.profile).gpcs,
                "profile": instance.place.profile,
                "number": instance.number,
                "uuid": instance.uuid,
                "holders": [asdict(holder) for holder in instance.holders],
            }
            for instance in instances
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
    for shown, instance in zip(row["instances"], instances, strict=True):
        shown |= {"owner": owners.get(instance.place), "environment": environments[instance]}
    row["profiles"] = [
        {
            "profile": profile.name,
            "gpcs": profile.gpcs,
            "sms": profile.sms,
            "memory_gib": profile.memory_gib,
            "starts": list(profile.starts),
            "fits_at": list(room(gpu.board, instances, profile)),
        }
        for profile in gpu.board.profiles
    ]
    return row
