"""A policy that moves its only tenant from one half of the board to the other and back."""

import migrator
from migrator.core.problem import Instance, Kind, Task
from migrator.policies.policy import Observation


@migrator.policy(every_s=2)
def moving(observation: Observation) -> tuple[Instance, ...]:
    """Moves every two slots."""
    (tenant,) = observation.tenants
    return (Instance(0 if observation.slot % 4 < 2 else 4, 3, Task(tenant.name, Kind.INFERENCE)),)
