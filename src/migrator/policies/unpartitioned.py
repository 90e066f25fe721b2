"""Unpartitioned sharing: everybody on the whole GPU at once, as kernels come (CMK).

One process per task with all the SMs; nothing is decided but that every retraining starts with
its window. What that costs (the GPU goes round among the busy) is the executor's to tell. More
processes per task, which help under MPS, would not here: without it one process has the GPU at a
time, and each more only makes the round longer.
"""

from __future__ import annotations

from migrator.core.instance import Kind, Task
from migrator.core.share import Share
from migrator.policies import mps
from migrator.policies.policy import Decision, Observation, Routing, Sharing, Sight


class Unpartitioned:
    """Nobody shares anything out."""

    name = "unpartitioned"
    summary = "every task on the whole GPU at once, retrainings from the window's start"
    sharing = Sharing.UNPARTITIONED
    sight = Sight.NOTHING
    routing = Routing.EARLIEST
    every_s: float | None = None
    on_completion = False

    def decide(self, observation: Observation) -> Decision:
        """All SMs to everybody."""
        serving = [Share(0, 100.0, Task(view.name, Kind.INFERENCE)) for view in observation.tenants]
        training = [
            mps.training(view.name, 100.0) for view in observation.tenants if view.retraining
        ]
        return Decision(((*serving, *training),))


POLICIES = (Unpartitioned(),)
