"""An MPS policy that gives a running retraining another share, once."""

from __future__ import annotations

from migrator.core.problem import Kind, Share, Task
from migrator.policies.policy import Decision, Observation, Policy, Sharing


class Resizing(Policy):
    """A quarter of the GPU for a retraining, then half of it."""

    name = "resizing"
    summary = "resizes a running retraining"
    sharing = Sharing.MPS
    every_s = 1.0

    def __init__(self) -> None:
        self.moved = False

    def decide(self, observation: Observation) -> Decision:
        """Half of the GPU serves."""
        (view,) = observation.tenants
        held = [Share(0, 50.0, Task(view.name, Kind.INFERENCE))]
        if view.retraining is not None:
            self.moved = self.moved or view.retraining.done > 0
            percent = 50.0 if self.moved else 25.0
            held.append(Share(0, percent, Task(view.name, Kind.RETRAINING)))
        return Decision((tuple(held),))
