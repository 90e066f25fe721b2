"""The measure of a placement: what the single-GPU planner makes of a set of tenants on a board.

The exact planner under the `paper` charge, as the policies use it: with as many of the
retrainings as fit. It is ten times as fast as under `survivors`, proves its optimum, and differs
from it by about half a percent (docs/cluster.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from migrator.cluster.placement.demand import observed
from migrator.core.catalogue import Board
from migrator.core.errors import InfeasibleError, SolverError
from migrator.core.problem import Charge
from migrator.policies.planning import planned
from migrator.policies.policy import TenantView


@dataclass(frozen=True, eq=False)
class Question:
    """A set of tenants on one GPU."""

    board: Board
    slot_s: float
    slots: int
    views: tuple[TenantView, ...]


def goodput(question: Question) -> float:
    """Requests of the next window that would be answered in time and correctly."""
    seen = observed(question.board, question.slot_s, question.slots, question.views)
    try:
        return planned(seen, Charge.PAPER)[1].goodput
    except (SolverError, InfeasibleError):
        pass
    # so many retrainings that none of their schedules was found in time: serving alone is a plan
    served = tuple(replace(each, retraining=None) for each in seen.tenants)
    try:
        return planned(replace(seen, tenants=served), Charge.PAPER)[1].goodput
    except SolverError:
        return 0.0
