"""A policy that gives the middle of a board of shares to one tenant, then to the other."""

import migrator
from migrator.core.problem import Instance, Kind, Task
from migrator.policies.policy import Observation


@migrator.policy(every_s=2)
def alternating(observation: Observation) -> tuple[Instance, ...]:
    """Changes the tenant of two slices every two slots."""
    first, second = (Task(tenant.name, Kind.INFERENCE) for tenant in observation.tenants)
    middle = first if observation.slot % 4 < 2 else second
    return (
        Instance(0, 2, first),
        Instance(2, 1, middle),
        Instance(3, 1, middle),
        Instance(4, 4, second),
    )
