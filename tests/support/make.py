"""Tenants and instances for tests that say only what matters to them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from migrator.core.problem import Instance, Kind, Task, Tenant


def tenant(name: str, received: Sequence[float], **changes: Any) -> Tenant:
    """Capability falls off with size, accuracy 0.5 rises to 0.9, nothing to retrain."""
    plain = Tenant(
        name=name,
        received=(tuple(received),),
        capability={1: 10.0, 2: 18.0, 3: 25.0, 4: 31.0, 7: 45.0},
        accuracy_pre=0.5,
        accuracy_post=0.9,
        retraining_slots=None,
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
