"""Equal MPS: the same percentage of the SMs for every inference and every retraining.

[ours] Every tenant has an equal part of the GPU, half of it for each of its two tasks; where
nothing is left to retrain, or nothing was there to retrain, its inference has both halves.
"""

from __future__ import annotations

from migrator.core.catalogue import Board
from migrator.core.share import Share
from migrator.policies import mps
from migrator.policies.policy import (
    Decision,
    Observation,
    Routing,
    Sharing,
    Sight,
    TenantView,
)


class EqualMps:
    """Equal shares, whatever comes."""

    name = "equal-mps"
    summary = "the same MPS share for every inference and every retraining"
    sharing = Sharing.MPS
    sight = Sight.NOTHING
    routing = Routing.EARLIEST
    every_s: float | None = None
    on_completion = True

    def decide(self, observation: Observation) -> Decision:
        """Equal parts, a finished retraining's to its tenant's inference."""
        part = 100 / len(observation.tenants)
        shares = (_tenant(view, observation.board, part) for view in observation.tenants)
        return Decision((tuple(each for some in shares for each in some),))


def _tenant(view: TenantView, board: Board, percent: float) -> tuple[Share, ...]:
    if view.retraining is None:
        return mps.serving(view.service, board, percent)
    training = mps.training(view.name, percent / 2)
    return (*mps.serving(view.service, board, percent / 2), training)


POLICIES = (EqualMps(),)
