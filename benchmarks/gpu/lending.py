"""Peers on instances whose idle slices are lent, as those of `migrator` are, for live comparisons.

python -m benchmarks.gpu.live ... --policies migrator,benchmarks.gpu.lending:EqualMig
"""

from __future__ import annotations

from migrator.policies.policy import Decision, Observation, Policy
from migrator.policies.registry import policy


class _Lending(Policy):
    """The policy called `peer`, with lending."""

    peer: str
    lends = True

    def __init__(self) -> None:
        own = self._own = policy(self.peer)
        self.name, self.summary = own.name, f"{own.summary}, with idle slices lent"
        self.sharing, self.sight, self.routing = own.sharing, own.sight, own.routing
        self.every_s, self.on_completion = own.every_s, own.on_completion
        self.estimates = own.estimates

    def decide(self, observation: Observation) -> Decision:
        """What the peer decides."""
        return self._own.decide(observation)


class EqualMig(_Lending):
    """`equal-mig`."""

    peer = "equal-mig"


class ParisReconfiguring(_Lending):
    """`paris-reconfiguring`."""

    peer = "paris-reconfiguring"
