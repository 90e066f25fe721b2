"""Tenants for tests that say only what matters to them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from migrator.core.problem import Tenant


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
