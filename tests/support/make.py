"""Tenants and instances for tests that say only what matters to them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from migrator.core.problem import Instance, Kind, RetrainingConfiguration, Task, Tenant


def only(accuracy: float, slots: Mapping[int, int] | None) -> tuple[RetrainingConfiguration, ...]:
    """The only way to retrain of a tenant; `slots` None: it cannot be started."""
    return (RetrainingConfiguration(accuracy, slots or {}),)


def several(
    **configurations: tuple[float, Mapping[int, int]],
) -> tuple[RetrainingConfiguration, ...]:
    """Ways to retrain by name: (accuracy afterwards, slots)."""
    return tuple(
        RetrainingConfiguration(accuracy, slots, name)
        for name, (accuracy, slots) in configurations.items()
    )


def lengths(tenant: Tenant) -> dict[int, int]:
    """The slots of the first configuration; empty where nothing is retrained."""
    return dict(tenant.configurations[0].slots) if tenant.configurations else {}


def tenant(
    name: str,
    received: Sequence[float],
    *,
    accuracy_post: float = 0.9,
    retraining_slots: Mapping[int, int] | None = None,
    **changes: Any,
) -> Tenant:
    """Capability falls off with size, accuracy 0.5 rises to 0.9, nothing to retrain."""
    plain = Tenant(
        name=name,
        received=(tuple(received),),
        capability={1: 10.0, 2: 18.0, 3: 25.0, 4: 31.0, 7: 45.0},
        accuracy_pre=0.5,
        configurations=only(accuracy_post, retraining_slots),
        overhead_s=1.0,
        min_gpcs=1,
    )
    return replace(plain, **changes)


def instances(text: str) -> tuple[Instance, ...]:
    """Instances written "2g@0:a 1g@2:a* 1g@3:-": inference, retraining, unused."""
    return tuple(map(_instance, text.split()))


def _instance(text: str) -> Instance:
    size, _, rest = text.partition("g@")
    start, _, owner = rest.partition(":")
    kind = Kind.RETRAINING if owner.endswith("*") else Kind.INFERENCE
    task = None if owner == "-" else Task(owner.rstrip("*"), kind)
    return Instance(int(start), int(size), task)
