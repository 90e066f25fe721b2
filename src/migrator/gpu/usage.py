"""How busy a GPU and its instances are, and how much memory they use, as NVML reports it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from migrator.core.errors import MigratorError
from migrator.gpu.drivers.nvml import Device, Nvml, open_nvml


@dataclass(frozen=True)
class Usage:
    """The use of one MIG instance, or of the whole GPU."""

    start: int | None
    """First memory slice of the instance; None: the whole GPU."""
    busy: float | None
    """The share of the last moments in which something computed; None where NVML does not say."""
    used_mib: int
    total_mib: int


def read_usage(index: int) -> tuple[Usage, ...]:
    """The instances of a GPU by place, or the whole GPU if it has none; empty without NVML."""
    try:
        with open_nvml() as nvml:
            device = nvml.device(index)
            return tuple(_instances(nvml, device)) or (_usage(nvml, device, None),)
    except MigratorError:  # no driver, or an instance that has just been destroyed
        return ()


def _instances(nvml: Nvml, device: Device) -> Iterator[Usage]:
    found = [
        (nvml.gpu_instance_info(each).start, each)
        for profile in nvml.profiles(device)
        for each in nvml.gpu_instances(device, profile)
    ]
    for start, instance in sorted(found, key=lambda each: each[0]):
        for profile in nvml.compute_profiles(instance):
            for compute in nvml.compute_instances(instance, profile):
                yield _usage(nvml, nvml.mig_device(compute), start)


def _usage(nvml: Nvml, device: Device, start: int | None) -> Usage:
    used_mib, total_mib = nvml.used_memory_mib(device)
    return Usage(start, nvml.busy(device), used_mib, total_mib)
