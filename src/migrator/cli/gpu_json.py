"""A GPU, its instances and its MIG profiles as JSON, for the verbs of `migrator gpu`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from migrator.gpu.names import Driver

if TYPE_CHECKING:
    from migrator.gpu.driver import Gpu, GpuInstance, Place

Row = dict[str, Any]
Environments = dict["GpuInstance", dict[str, str] | None]


def gpu_json(gpu: Gpu, instances: tuple[GpuInstance, ...]) -> Row:
    """A GPU and what is on it."""
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "board": gpu.board.name,
        "driver": gpu.driver,
        "driver_version": gpu.driver_version,
        "mig_mode": gpu.divides and gpu.driver != Driver.MPS,
        "instances": [_instance_json(gpu, each) for each in instances],
    }


def shown_json(
    gpu: Gpu,
    instances: tuple[GpuInstance, ...],
    owners: dict[Place, str],
    environments: Environments,
) -> Row:
    """The same with whose every instance is, what a worker needs there, and what still fits."""
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
    from migrator.cli.gpu_text import room

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
