"""A policy that gives one tenant a single slice of a board of shares and lends idle slices."""

from migrator.core.problem import Instance, Kind, Task
from migrator.policies.policy import Decision, Observation, Policy


class Lending(Policy):
    """The first tenant has one slice, the second one the others."""

    name, summary, lends = "lending", "one slice against seven", True

    def decide(self, observation: Observation) -> Decision:
        first, second = (Task(tenant.name, Kind.INFERENCE) for tenant in observation.tenants)
        rest = tuple(Instance(start, 1, second) for start in range(1, 8))
        return Decision(((Instance(0, 1, first), *rest),))
