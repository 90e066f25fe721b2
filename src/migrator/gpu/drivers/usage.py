"""The use of a GPU and of its MIG instances, as NVML reports it."""

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
    """The share of the last moments in which something computed; None for an instance."""
    used_mib: int
    total_mib: int


def read_usage(index: int) -> tuple[Usage, ...]:
    """The instances of a GPU by place, or the whole GPU if it has none; empty without NVML."""
    try:
        with open_nvml() as nvml:
            device = nvml.device(index)
            whole = Usage(None, nvml.busy(device), *nvml.memory_mib(device))
            return tuple(_instances(nvml, device)) or (whole,)
    except MigratorError:  # no driver, or an instance that has just been destroyed
        return ()


def _instances(nvml: Nvml, device: Device) -> Iterator[Usage]:
    instances = [
        (nvml.gpu_instance_info(instance).start, instance)
        for profile in nvml.profiles(device)
        for instance in nvml.gpu_instances(device, profile)
    ]
    for start, instance in sorted(instances, key=lambda listed: listed[0]):
        for profile in nvml.compute_profiles(instance):
            for compute in nvml.compute_instances(instance, profile):
                yield Usage(start, None, *nvml.memory_mib(nvml.mig_device(compute)))
