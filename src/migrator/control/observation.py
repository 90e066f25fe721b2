"""The types and functions of `policies` that the simulator and the daemon use.

They import them from here and do not depend on `policies` directly.
"""

from __future__ import annotations

from migrator.policies.policy import (
    Decision,
    Observation,
    Policy,
    RetrainingState,
    Routing,
    Sharing,
    Sight,
    TenantView,
    lends,
    sharing_on,
)
from migrator.policies.registry import policy as policy_named

__all__ = [
    "Decision",
    "Observation",
    "Policy",
    "RetrainingState",
    "Routing",
    "Sharing",
    "Sight",
    "TenantView",
    "lends",
    "policy_named",
    "sharing_on",
]
